package objective

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// Urgency is the order in which findings are acted on.
type Urgency uint8

const (
	// UrgencyFinish: a joint configuration, which needs two majorities, has to end.
	UrgencyFinish Urgency = iota
	// UrgencyQuorum: if one more voter is lost, there is no quorum.
	UrgencyQuorum
	// UrgencyRepair: a voter is lost or damaged.
	UrgencyRepair
	// UrgencyAdd: there are too few voters.
	UrgencyAdd
	// UrgencyDrain: a node leads that must not lead.
	UrgencyDrain
	// UrgencyLeave: a replica is on a node that is being decommissioned.
	UrgencyLeave
	// UrgencyRemove: there are too many voters, or a learner was left over.
	UrgencyRemove
	// UrgencyRule: a placement rule is broken.
	UrgencyRule
	// UrgencySplit: the partition is to be split.
	UrgencySplit
	// UrgencySpread: replicas share a zone or region without having to.
	UrgencySpread
	// UrgencyLeader: another node should lead.
	UrgencyLeader
	// UrgencyMerge: the partition is to be merged with its right neighbour.
	UrgencyMerge
	// UrgencyBlocked: there is no quorum, so nothing can be done.
	UrgencyBlocked

	// UrgencyNone: nothing is wrong.
	UrgencyNone
)

// Finding is the most urgent thing that is wrong with a partition, as far as the partition itself
// shows.
type Finding struct {
	Partition uint32
	Urgency   Urgency
	Cause     planner.Cause
	// At is the index of the replica that the finding is about; NoReplica if it is about none.
	At int8
}

// Check finds the most urgent thing that is wrong with a partition. fit: the partition is complete,
// and every replica is live and sound, so that it may be moved for balance.
func (o *Objective) Check(i uint32) (f Finding, fit bool) {
	p := &o.state.Partitions[i]
	f = Finding{Partition: i, Urgency: UrgencyNone, At: state.NoReplica}
	if !o.state.Keyspaces[p.Keyspace].Known || p.Count == 0 {
		return f, false
	}
	x := o.Inspect(p)
	if !x.Quorum {
		f.Urgency = UrgencyBlocked
		return f, x.Settled
	}
	o.checkQuorum(p, &x, &f)
	if f.Urgency == UrgencyNone {
		o.CheckPlace(p, &x, &f)
	}
	if f.Urgency > UrgencyDrain && o.state.LeaderOf(p) != state.NoNode {
		o.checkLeader(p, &f)
	}
	o.checkGrowth(i, &x, &f)
	return f, x.Settled
}

// checkQuorum finds what is wrong with the number of replicas.
func (o *Objective) checkQuorum(p *state.Partition, x *Inspection, f *Finding) {
	factor := o.state.Keyspaces[p.Keyspace].Wants.Replicas
	switch {
	case x.joint:
		f.Urgency, f.Cause = UrgencyFinish, planner.Unfinished
	case x.Good < x.Voters && x.Voters > factor:
		// The bad voter is removed, and none is added.
		f.At = o.firstBad(p)
		f.Urgency, f.Cause = UrgencyRepair, planner.TooMany
	case x.Good < x.Voters:
		f.At = o.firstBad(p)
		f.Urgency, f.Cause = UrgencyRepair, o.CauseOfBad(o.state.Replicas(p)[f.At])
		if x.Answering == x.Voters/2+1 {
			f.Urgency = UrgencyQuorum
		}
	case x.Voters < factor:
		f.Urgency, f.Cause = UrgencyAdd, planner.TooFew
	case x.Learners > 0:
		f.Urgency, f.Cause = UrgencyRemove, planner.LeftoverLearner
		f.At = o.state.First(p, func(r state.Replica) bool { return r.Role == planner.Learner })
	case x.Voters > factor:
		f.Urgency, f.Cause = UrgencyRemove, planner.TooMany
	}
}

// CheckPlace finds what is wrong with the places of the replicas. As long as a voter is silent, it
// finds nothing: a change of replicas would then be one failure away from the loss of the quorum.
func (o *Objective) CheckPlace(p *state.Partition, x *Inspection, f *Finding) {
	if x.Answering < x.Voters {
		return
	}
	switch {
	case x.Leaving > 0:
		f.Urgency, f.Cause = UrgencyLeave, planner.NodeLeaving
		f.At = o.state.First(p, func(r state.Replica) bool {
			return o.state.Nodes[r.Node].Condition.Is(state.Leaving)
		})
	case x.Violations > 0:
		f.Urgency, f.Cause = UrgencyRule, planner.RuleBroken
	default:
		o.FindSpread(x, f)
	}
}

// FindSpread finds replicas that share a zone or region without having to, and says whether it did.
func (o *Objective) FindSpread(x *Inspection, f *Finding) bool {
	switch {
	case x.Spread.Zones > leastPairs(x.Good, o.state.OpenZones):
		f.Urgency, f.Cause = UrgencySpread, planner.SharedZone
	case x.Spread.Regions > leastPairs(x.Good, o.state.OpenRegions):
		f.Urgency, f.Cause = UrgencySpread, planner.SharedRegion
	default:
		return false
	}
	return true
}

// checkLeader finds a leader on a node that should not lead. A drained node hands leadership over
// before anything else is done that is not a repair.
func (o *Objective) checkLeader(p *state.Partition, f *Finding) {
	switch o.PresentLeaderCost(p, p.Leader) {
	case mustNotLead:
		f.Urgency, f.Cause = UrgencyDrain, planner.NodeDraining
	case shouldNotLead:
		returns := p.Leads == p.Wanted && p.Leads != p.Leader &&
			o.PresentLeaderCost(p, p.Leads) == 0
		switch {
		case f.Urgency <= UrgencyLeader, returns && o.state.Settings().NodesReturn:
		case returns:
			f.Urgency, f.Cause = UrgencyLeader, planner.LeaderWanted
		default:
			f.Urgency, f.Cause = UrgencyLeader, planner.LeaderPreferred
		}
	}
}

// firstBad is the index of the first voter that has to be replaced.
func (o *Objective) firstBad(p *state.Partition) int8 {
	return o.state.First(p, func(r state.Replica) bool {
		return r.Role != planner.Learner && o.MustReplace(r)
	})
}

// CauseOfBad says why a replica has to be replaced.
func (o *Objective) CauseOfBad(r state.Replica) planner.Cause {
	node := &o.state.Nodes[r.Node].Told
	switch {
	case r.Damage == planner.Wiped:
		return planner.WipedDisk
	case r.Damage == planner.Broken:
		return planner.BrokenReplica
	case node.Status == planner.Gone:
		return planner.GoneNode
	case node.Displaced && !node.Alive:
		return planner.WipedDisk
	}
	return planner.LostNode
}

// checkGrowth finds out whether a partition is to be split, merged, or led elsewhere as a new tail,
// unless something more urgent was found. The finding does not depend on pauses, nor on the
// replicas of the neighbour: the finding waits for these when it has its turn.
func (o *Objective) checkGrowth(i uint32, x *Inspection, f *Finding) {
	p := &o.state.Partitions[i]
	if !x.Settled || o.state.LeaderOf(p) == state.NoNode {
		return
	}
	if f.Urgency > UrgencySplit {
		if w := o.Split(i); w.At != nil {
			f.Urgency, f.Cause, f.At = UrgencySplit, w.Cause, state.NoReplica
			return
		}
	}
	if f.Urgency > UrgencyLeader && o.IsNewTail(i) {
		f.Urgency, f.Cause, f.At = UrgencyLeader, planner.NewTail, state.NoReplica
		return
	}
	if f.Urgency == UrgencyNone && o.state.Settings().Merges {
		if right, _ := o.MergesWith(i); right != state.NoPartition {
			f.Urgency, f.Cause, f.At = UrgencyMerge, planner.TooSmall, state.NoReplica
		}
	}
}

package propose

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// finish leaves a joint configuration that no operator carries on. A joint configuration cannot be
// taken back.
func (pr *Proposer) finish(f objective.Finding) (planner.Operator, Outcome) {
	p := &pr.state.Partitions[f.Partition]
	c := newChange(f.Partition, planner.Finish)
	c.reason = planner.Reason{Cause: planner.Unfinished}
	for _, r := range pr.state.Replicas(p) {
		if r.Role == planner.Outgoing {
			c.remove = r.Node
		}
	}
	if c.remove != state.NoNode && c.remove == p.Leader {
		c.lead, c.rejected = pr.bestLeader(p, c.remove)
	}
	return pr.complete(c)
}

// repair replaces a lost or damaged voter, removes it if there are enough others, or adds a missing
// voter.
func (pr *Proposer) repair(f objective.Finding) (planner.Operator, Outcome) {
	p := &pr.state.Partitions[f.Partition]
	if f.Cause == planner.TooMany {
		return pr.shrink(f)
	}
	x := pr.objective.Inspect(p)
	kind := planner.Replace
	if f.Urgency == objective.UrgencyAdd {
		kind = planner.Add
	}
	c := newChange(f.Partition, kind)
	c.reason = planner.Reason{Cause: f.Cause, Have: x.Voters,
		Want: pr.state.Keyspaces[p.Keyspace].Wants.Replicas}
	if kind == planner.Replace {
		r := pr.state.Replicas(p)[f.At]
		c.remove = r.Node
		c.reason.Node, c.reason.Have, c.reason.Want = pr.state.NodeID(r.Node), x.Answering, x.Voters
		if f.Cause == planner.LostNode {
			c.reason.Silent = pr.state.Now().Sub(pr.state.Nodes[r.Node].Told.Since)
		}
	}
	if at := pr.learnerToKeep(p); at != state.NoReplica {
		c.add, c.ready = pr.state.Replicas(p)[at].Node, true
		return pr.complete(c)
	}
	if x.Learners > 0 {
		// A learner that cannot become the voter has to go first.
		at := pr.state.First(p, func(r state.Replica) bool { return r.Role == planner.Learner })
		return pr.dropLearner(f.Partition, at)
	}
	if pr.objective.SenderBusy(pr.state.LeaderOf(p)) {
		return planner.Operator{}, Waits
	}
	c.found = pr.search(p, int(f.At), true, false)
	if !c.found.usable() {
		if !c.found.passing && kind == planner.Replace && f.Cause != planner.LostNode &&
			f.Cause != planner.GoneNode && pr.state.Nodes[c.remove].Condition.Is(state.Open) {
			// No other node can hold the new replica, but the node of the damaged replica can, once the
			// damaged replica is gone.
			c.kind, c.found = planner.Remove, places{}
			return pr.complete(c)
		}
		return planner.Operator{}, c.found.outcome()
	}
	c.add = c.found.best.node
	return pr.complete(c)
}

// learnerToKeep is the index of a learner, left over by an earlier change, that can become the
// missing voter.
func (pr *Proposer) learnerToKeep(p *state.Partition) int8 {
	ks := &pr.state.Keyspaces[p.Keyspace]
	return pr.state.First(p, func(r state.Replica) bool {
		return r.Role == planner.Learner && r.Damage == planner.Sound &&
			pr.state.Nodes[r.Node].Condition.Is(state.Open) &&
			(len(ks.Masks) == 0 || ks.Wants.Rules.Allows(ks.Masks[r.Node]))
	})
}

// dropLearner removes a learner that was left over.
func (pr *Proposer) dropLearner(i uint32, at int8) (planner.Operator, Outcome) {
	c := newChange(i, planner.Remove)
	c.remove = pr.state.Replicas(&pr.state.Partitions[i])[at].Node
	c.reason = planner.Reason{Cause: planner.LeftoverLearner, Node: pr.state.NodeID(c.remove)}
	return pr.complete(c)
}

// shrink removes the voter without which the partition is best, or the left-over learner.
func (pr *Proposer) shrink(f objective.Finding) (planner.Operator, Outcome) {
	if f.Cause == planner.LeftoverLearner {
		return pr.dropLearner(f.Partition, f.At)
	}
	p := &pr.state.Partitions[f.Partition]
	x := pr.objective.Inspect(p)
	c := newChange(f.Partition, planner.Remove)
	c.reason = planner.Reason{Cause: planner.TooMany, Have: x.Voters,
		Want: pr.state.Keyspaces[p.Keyspace].Wants.Replicas}
	var best planner.Operator
	outcome := Stuck
	for at, r := range pr.state.Replicas(p) {
		if r.Role != planner.Voter || f.At != state.NoReplica && int8(at) != f.At {
			continue
		}
		c.remove, c.lead = r.Node, state.NoNode
		if op, o := pr.complete(c); o == Proposed {
			pr.state.Withdraw()
			if outcome != Proposed || betterRemoval(&op, &best) {
				best, outcome = op, Proposed
			}
		}
	}
	if outcome == Proposed {
		pr.state.Launch(pr.state.Indexed(f.Partition, best.InFlight()))
	}
	return best, outcome
}

// betterRemoval compares two removals: by the scores, then by whether the leader stays, then by the
// node.
func betterRemoval(a, b *planner.Operator) bool {
	if c := a.After.Compare(b.After); c != 0 {
		return c < 0
	}
	if (a.Lead == 0) != (b.Lead == 0) {
		return a.Lead == 0
	}
	return a.Remove < b.Remove
}

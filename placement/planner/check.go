package planner

// urgency orders what is done first.
type urgency uint8

const (
	// urgeFinish: a joint configuration needs two majorities; it ends first.
	urgeFinish urgency = iota
	// urgeLast: one more loss and there is no quorum.
	urgeLast
	urgeRepair
	urgeGrow
	urgeDrain
	urgeLeave
	urgeShrink
	urgeRule
	urgeSplit
	urgeSpread
	urgeLeader
	urgeMerge
	// urgeBlocked: nothing can be done.
	urgeBlocked

	urgeNothing
)

// finding is what is wrong with a partition, as far as a look at it alone can tell.
type finding struct {
	partition uint32
	urgency   urgency
	cause     Cause
	// at is the replica at issue, noReplica if there is none.
	at int8
	// fit: the partition is complete, and every replica is live and sound: it may be moved for
	// balance.
	fit bool
}

// check finds the most urgent that is wrong with a partition.
func (s *State) check(i uint32) finding {
	p := &s.partitions[i]
	f := finding{partition: i, urgency: urgeNothing, at: noReplica}
	if !s.keyspaces[p.keyspace].known || p.count == 0 {
		return f
	}
	x := s.inspect(p)
	f.fit = x.settled
	if !x.quorum {
		f.urgency = urgeBlocked
		return f
	}
	s.checkQuorum(p, &x, &f)
	if f.urgency == urgeNothing {
		s.checkPlace(p, &x, &f)
	}
	if f.urgency > urgeDrain && s.leaderOf(p) != noNode {
		s.checkLeader(p, &f)
	}
	s.checkGrowth(i, &x, &f)
	return f
}

// checkQuorum finds what is wrong with the number of replicas.
func (s *State) checkQuorum(p *partition, x *inspection, f *finding) {
	factor := s.keyspaces[p.keyspace].info.Replicas
	switch {
	case x.joint:
		f.urgency, f.cause = urgeFinish, Unfinished
	case x.good < x.voters && x.voters > factor:
		// The bad one goes, and nothing comes.
		f.at = s.firstBad(p)
		f.urgency, f.cause = urgeRepair, TooMany
	case x.good < x.voters:
		f.at = s.firstBad(p)
		f.urgency, f.cause = urgeRepair, s.causeOfBad(s.replicas(p)[f.at])
		if x.answering == x.voters/2+1 {
			f.urgency = urgeLast
		}
	case x.voters < factor:
		f.urgency, f.cause = urgeGrow, TooFew
	case x.learners > 0:
		f.urgency, f.cause = urgeShrink, LeftoverLearner
		f.at = s.firstOf(p, func(r replica) bool { return r.role == Learner })
	case x.voters > factor:
		f.urgency, f.cause = urgeShrink, TooMany
	}
}

// checkPlace finds what is wrong with where the replicas are. What is not a repair waits until
// every voter answers: a change with one of them silent would be one failure away from no quorum.
func (s *State) checkPlace(p *partition, x *inspection, f *finding) {
	if x.answering < x.voters {
		return
	}
	switch {
	case x.leaving > 0:
		f.urgency, f.cause = urgeLeave, NodeLeaving
		f.at = s.firstOf(p, func(r replica) bool { return s.nodes[r.node].cond.is(leaving) })
	case x.violations > 0:
		f.urgency, f.cause = urgeRule, RuleBroken
	default:
		s.findSpread(x, f)
	}
}

// findSpread finds replicas that share a zone or region without having to.
func (s *State) findSpread(x *inspection, f *finding) bool {
	switch {
	case x.spread.zones > leastPairs(x.good, s.openZones):
		f.urgency, f.cause = urgeSpread, SharedZone
	case x.spread.regions > leastPairs(x.good, s.openRegions):
		f.urgency, f.cause = urgeSpread, SharedRegion
	default:
		return false
	}
	return true
}

// checkLeader finds a leader where none should be. A drained node hands over before anything else
// that is not a repair.
func (s *State) checkLeader(p *partition, f *finding) {
	switch s.misled(p, p.leader) {
	case 2:
		f.urgency, f.cause = urgeDrain, NodeDraining
	case 1:
		returns := p.leads == p.wanted && p.leads != p.leader && s.misled(p, p.leads) == 0
		switch {
		case f.urgency <= urgeLeader, returns && s.settings.NodesReturn:
		case returns:
			f.urgency, f.cause = urgeLeader, LeaderWanted
		default:
			f.urgency, f.cause = urgeLeader, LeaderPreferred
		}
	}
}

func (s *State) firstOf(p *partition, is func(replica) bool) int8 {
	best := noReplica
	for i, r := range s.replicas(p) {
		// By the id, not by the order in the descriptor.
		if is(r) && (best == noReplica || s.id(r.node) < s.id(s.replicas(p)[best].node)) {
			best = int8(i)
		}
	}
	return best
}

func (s *State) firstBad(p *partition) int8 {
	return s.firstOf(p, func(r replica) bool { return r.role != Learner && s.isBad(r) })
}

func (s *State) causeOfBad(r replica) Cause {
	switch {
	case r.damage == Wiped:
		return WipedDisk
	case r.damage == Broken:
		return BrokenReplica
	case s.nodes[r.node].info.Status == Gone:
		return GoneNode
	case s.nodes[r.node].info.Displaced && !s.nodes[r.node].info.Alive:
		return WipedDisk
	}
	return LostNode
}

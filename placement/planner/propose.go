package planner

import "github.com/tidemarkdb/tidemark/range/keys"

// outcome is what became of a finding.
type outcome uint8

const (
	// proposed: there is an operator.
	proposed outcome = iota
	// waits: it is tried again in the next step.
	waits
	// stays: nothing can be done until a node or the keyspace changes.
	stays
)

// change is an operator in the making.
type change struct {
	partition uint32
	kind      Kind
	// add, remove and lead are the nodes of the operator, or noNode.
	add, remove, lead uint16
	// ready: the learner is on its node already.
	ready  bool
	reason Reason
	found  places
	// key is where it splits, right what is merged into it; resizes: it is one of both.
	key     Key
	right   keys.PartitionID
	resizes bool
	// growth is LevelGrowth before and after.
	growth [2]float64
	// rejected is set by what does not search for a place.
	rejected *Alternative
}

func (s *State) newChange(i uint32, kind Kind) change {
	return change{partition: i, kind: kind, add: noNode, remove: noNode, lead: noNode}
}

// attempt makes an operator of a finding.
func (s *State) attempt(f finding) (Operator, outcome) {
	switch f.urgency {
	case urgeFinish:
		return s.finish(f)
	case urgeLast, urgeRepair, urgeGrow:
		return s.repair(f)
	case urgeShrink:
		return s.shrink(f)
	case urgeSplit:
		return s.split(f)
	case urgeMerge:
		return s.merge(f)
	case urgeDrain, urgeLeader:
		if f.cause == NewEnd {
			return s.placeEnd(f)
		}
		return s.correctLeader(f)
	case urgeLeave, urgeSpread:
		return s.replaceOne(f)
	case urgeRule:
		op, o := s.replaceOne(f)
		p := &s.partitions[f.partition]
		if x := s.inspect(p); o == stays && s.findSpread(&x, &f) {
			// What cannot satisfy the rules can still be spread.
			return s.replaceOne(f)
		}
		return op, o
	}
	return Operator{}, stays
}

// try makes the operator of a finding as attempt does, and does not count it as in flight.
func (s *State) try(f finding) (Operator, outcome) {
	clear(s.full)
	op, o := s.attempt(f)
	if o == proposed {
		s.withdraw()
	}
	return op, o
}

// finish leaves a joint configuration that no operator carries on. Forward is the only way there
// is.
func (s *State) finish(f finding) (Operator, outcome) {
	p := &s.partitions[f.partition]
	c := s.newChange(f.partition, Finish)
	c.reason = Reason{Cause: Unfinished}
	for _, r := range s.replicas(p) {
		if r.role == Outgoing {
			c.remove = r.node
		}
	}
	if c.remove != noNode && c.remove == p.leader {
		c.lead, c.rejected = s.bestLeader(p, c.remove)
	}
	return s.complete(c)
}

// repair replaces a lost or damaged voter, removes it if there are enough, or adds one that is
// missing.
func (s *State) repair(f finding) (Operator, outcome) {
	p := &s.partitions[f.partition]
	if f.cause == TooMany {
		return s.shrink(f)
	}
	x := s.inspect(p)
	kind := Replace
	if f.urgency == urgeGrow {
		kind = Add
	}
	c := s.newChange(f.partition, kind)
	c.reason = Reason{Cause: f.cause, Have: x.voters, Want: s.keyspaces[p.keyspace].info.Replicas}
	if kind == Replace {
		r := s.replicas(p)[f.at]
		c.remove = r.node
		c.reason.Node, c.reason.Have, c.reason.Want = s.id(r.node), x.answering, x.voters
		if f.cause == LostNode {
			c.reason.Silent = s.now.Sub(s.nodes[r.node].info.Since)
		}
	}
	if at := s.learnerToKeep(p); at != noReplica {
		c.add, c.ready = s.replicas(p)[at].node, true
		return s.complete(c)
	}
	if x.learners > 0 {
		// A learner that cannot be used is in the way.
		at := s.firstOf(p, func(r replica) bool { return r.role == Learner })
		return s.dropLearner(f.partition, at)
	}
	if s.senderBusy(s.leaderOf(p)) {
		return Operator{}, waits
	}
	c.found = s.search(p, int(f.at), true, false)
	if !c.found.usable() {
		if !c.found.passing && kind == Replace && f.cause != LostNode && f.cause != GoneNode &&
			s.nodes[c.remove].cond.is(open) {
			// There is no other node, but its own can hold a new replica once this one is gone.
			c.kind, c.found = Remove, places{}
			return s.complete(c)
		}
		return Operator{}, s.outcomeOf(&c.found)
	}
	c.add = c.found.best.node
	return s.complete(c)
}

func (s *State) outcomeOf(f *places) outcome {
	if f.passing || f.found > 0 && f.best.refused == Allowed {
		return waits
	}
	return stays
}

// learnerToKeep finds a learner that was left behind and that can become the voter that is missing.
func (s *State) learnerToKeep(p *partition) int8 {
	ks := &s.keyspaces[p.keyspace]
	return s.firstOf(p, func(r replica) bool {
		return r.role == Learner && r.damage == Sound && s.nodes[r.node].cond.is(open) &&
			(len(ks.masks) == 0 || ks.info.Rules.allows(ks.masks[r.node]))
	})
}

func (s *State) dropLearner(i uint32, at int8) (Operator, outcome) {
	c := s.newChange(i, Remove)
	c.remove = s.replicas(&s.partitions[i])[at].node
	c.reason = Reason{Cause: LeftoverLearner, Node: s.id(c.remove)}
	return s.complete(c)
}

// shrink removes the voter without which the rest is best.
func (s *State) shrink(f finding) (Operator, outcome) {
	if f.cause == LeftoverLearner {
		return s.dropLearner(f.partition, f.at)
	}
	p := &s.partitions[f.partition]
	x := s.inspect(p)
	c := s.newChange(f.partition, Remove)
	c.reason = Reason{Cause: TooMany, Have: x.voters,
		Want: s.keyspaces[p.keyspace].info.Replicas}
	var best Operator
	outcome := stays
	for at, r := range s.replicas(p) {
		if r.role != Voter || f.at != noReplica && int8(at) != f.at {
			continue
		}
		c.remove, c.lead = r.node, noNode
		if op, o := s.complete(c); o == proposed {
			s.withdraw()
			if outcome != proposed || s.shrinksBetter(&op, &best) {
				best, outcome = op, proposed
			}
		}
	}
	if outcome == proposed {
		s.launch(s.flightFor(best.Flight()))
	}
	return best, outcome
}

func (s *State) shrinksBetter(a, b *Operator) bool {
	if c := a.After.Compare(b.After); c != 0 {
		return c < 0
	}
	if (a.Lead == 0) != (b.Lead == 0) {
		return a.Lead == 0 // the leader stays where it is
	}
	return a.Remove < b.Remove
}

// replaceOne moves the one replica whose move betters the partition most.
func (s *State) replaceOne(f finding) (Operator, outcome) {
	p := &s.partitions[f.partition]
	if f.urgency == urgeSpread && s.paused(p) {
		return Operator{}, waits
	}
	if s.senderBusy(s.leaderOf(p)) {
		return Operator{}, waits
	}
	c := s.newChange(f.partition, Replace)
	c.reason = Reason{Cause: f.cause}
	var best change
	outcome := stays
	for at, r := range s.replicas(p) {
		if f.at != noReplica && f.at != int8(at) || f.at == noReplica && !s.movable(p, f.cause, at) {
			continue
		}
		c.remove, c.found = r.node, s.search(p, at, f.urgency == urgeLeave, false)
		if !c.found.usable() {
			if o := s.outcomeOf(&c.found); o == waits && s.wouldBetter(p, at, &c.found) {
				outcome = min(outcome, waits)
			}
			continue
		}
		if best.kind != Replace || best.found.found == 0 || c.better(&best, s) {
			best = c
		}
	}
	if best.found.found == 0 {
		return Operator{}, outcome
	}
	best.add = best.found.best.node
	s.explainMove(&best)
	op, o := s.complete(best)
	if o == stays {
		return op, outcome
	}
	return op, o
}

// better compares two moves of one partition: by where the new replica is, then rather not the
// leader's, then by the node that is left.
func (c *change) better(d *change, s *State) bool {
	if c.found.best.betterPlaced(&d.found.best) || d.found.best.betterPlaced(&c.found.best) {
		return c.found.best.betterPlaced(&d.found.best)
	}
	leader := s.partitions[c.partition].leader
	if (c.remove == leader) != (d.remove == leader) {
		return d.remove == leader
	}
	return s.id(c.remove) < s.id(d.remove)
}

// movable says whether moving a replica can mend what is wrong.
func (s *State) movable(p *partition, cause Cause, at int) bool {
	replicas := s.replicas(p)
	if replicas[at].role != Voter {
		return false
	}
	if cause == RuleBroken {
		ks := &s.keyspaces[p.keyspace]
		m := s.match(ks, replicas)
		return m.rule[at] == noRule
	}
	for i, r := range replicas {
		n, m := &s.nodes[r.node], &s.nodes[replicas[at].node]
		if i != at && n.region == m.region {
			return true
		}
	}
	return false
}

// wouldBetter says whether a place that is only busy would better the partition.
func (s *State) wouldBetter(p *partition, at int, f *places) bool {
	x := s.inspect(p)
	if f.found == 0 {
		return f.passing
	}
	if s.nodes[s.replicas(p)[at].node].cond.is(leaving) {
		return true
	}
	now := candidate{violations: x.violations, spread: x.spread}
	return f.hasPlaced && f.placed.betterPlaced(&now) ||
		f.best.refused == NoRoom && f.best.betterPlaced(&now)
}

// explainMove completes the reason of a replacement.
func (s *State) explainMove(c *change) {
	p := &s.partitions[c.partition]
	x := s.inspect(p)
	switch r := &c.reason; r.Cause {
	case NodeLeaving:
		r.Node = s.id(c.remove)
	case RuleBroken:
		r.Rules = s.keyspaces[p.keyspace].info.Rules.String()
	case SharedZone, SharedRegion:
		r.Cause = SharedZone
		r.Have, r.Want = x.spread.zones, c.found.best.spread.zones
		if r.Have == r.Want {
			r.Cause = SharedRegion
			r.Have, r.Want = x.spread.regions, c.found.best.spread.regions
		}
	}
}

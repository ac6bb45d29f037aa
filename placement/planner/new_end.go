package planner

import "cmp"

// Where keys ascend, all writes go to the partition with the end of them. It is split by its size
// close to the end, so that the part that goes on growing is small, and that part is given to the
// node with the least load: the next one will be elsewhere, and no node has all of it for long.

const (
	// leastEndGain is by how much of its share a node has to have less load than the one that leads
	// the end, for a transfer; leastEndMove is by how much less than the best of those that hold a
	// replica, for a move.
	leastEndGain, leastEndMove = 0.1, 0.5
)

// isNewEnd says whether a partition is the new end of ascending keys, and was not placed yet.
func (s *State) isNewEnd(i uint32) bool {
	p, g := &s.partitions[i], &s.growths[i]
	return g.ascending >= sequential && !g.founded && g.resized != 0 && p.ended <= g.resized &&
		!s.keyspaces[p.keyspace].info.NoAuto && s.leftOf(g.resized, endFor) > 0
}

// placeEnd has a new end led by the node with the least load: by a voter that is there or, if
// another node has much less, by a replica that is put there.
func (s *State) placeEnd(f finding) (Operator, outcome) {
	i := f.partition
	p := &s.partitions[i]
	if !s.isNewEnd(i) {
		return Operator{}, stays
	}
	leader := s.leaderOf(p)
	to := leader
	for _, r := range s.replicas(p) {
		if s.canLead(r) && s.disliked(p, r.node) <= s.disliked(p, leader) &&
			s.lessLoaded(p, r.node, to) {
			to = r.node
		}
	}
	c := s.newChange(i, Transfer)
	c.lead = to
	at := s.firstOf(p, func(r replica) bool { return r.node == leader })
	if found := s.search(p, int(at), false, true); found.usable() && !s.averse(found.best.node) &&
		s.emptier(p, found.best.node, to) {
		c.kind, c.add, c.remove, c.lead = Replace, found.best.node, leader, found.best.node
		c.found = found
	}
	if c.kind == Transfer {
		if to == leader || s.endLoad(p, leader)-s.endLoad(p, to) < leastEndGain {
			return Operator{}, stays
		}
		if s.nodes[to].transfers >= s.settings.TransfersInFlight {
			return Operator{}, waits
		}
	} else if s.senderBusy(leader) {
		return Operator{}, waits
	}
	from := s.endLoad(p, leader)
	c.growth = [2]float64{1 + from, 1 + s.endLoad(p, c.lead)}
	c.reason = Reason{Cause: NewEnd, From: &Share{Node: s.id(leader), Before: from},
		To: &Share{Node: s.id(c.lead), Before: s.endLoad(p, c.lead)}}
	c.reason.From.After, c.reason.To.After = c.reason.From.Before, c.reason.To.Before
	c.reason.Growth = &GrowthReason{Ascending: int(s.growths[i].ascending)}
	return s.complete(c)
}

// endLoad is how far a node would be from its share of load if it led a partition.
func (s *State) endLoad(p *partition, n uint16) float64 {
	more := int64(0)
	if p.leads != n {
		more = int64(p.leaderLoad) - int64(p.followerLoad)
	}
	return s.deviation(byLoad, n, more)
}

func (s *State) lessLoaded(p *partition, a, b uint16) bool {
	if x, y := s.endLoad(p, a), s.endLoad(p, b); x != y {
		return x < y
	}
	return cmp.Compare(s.id(a), s.id(b)) < 0 && b != s.leaderOf(p)
}

// emptier says whether a node without a replica has so much less load that moving one is worth it.
func (s *State) emptier(p *partition, n, than uint16) bool {
	return s.endLoad(p, than)-s.deviation(byLoad, n, int64(p.leaderLoad)) >= leastEndMove
}

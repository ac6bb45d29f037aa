package planner

import (
	"cmp"
	"fmt"
)

// correctLeader hands leadership to where it should be.
func (s *State) correctLeader(f finding) (Operator, outcome) {
	p := &s.partitions[f.partition]
	c := s.newChange(f.partition, Transfer)
	c.reason = Reason{Cause: f.cause, Node: s.id(p.leader)}
	switch f.cause {
	case LeaderWanted:
		c.lead = p.leads
	case LeaderPreferred:
		c.reason.Rules = s.keyspaces[p.keyspace].info.Leaders.String()
		c.lead, c.rejected = s.bestLeader(p, p.leader)
	default:
		c.lead, c.rejected = s.bestLeader(p, p.leader)
	}
	if c.lead == noNode {
		// No replica to hand over to. If the replica goes as well, a new one can take over.
		x := s.inspect(p)
		if f = (finding{partition: f.partition, urgency: urgeNothing, at: noReplica}); x.settled {
			s.checkPlace(p, &x, &f)
		}
		if f.urgency == urgeNothing {
			return Operator{}, stays
		}
		return s.attempt(f)
	}
	if s.nodes[c.lead].transfers >= s.settings.TransfersInFlight {
		return Operator{}, waits
	}
	return s.complete(c)
}

// contender is a voter that may lead, as the objective sees it.
type contender struct {
	node uint16
	// averse: it leaves leadership to others at present. It gets it only where there are no others.
	averse   bool
	disliked int
	// excess is by how many percent the load of its node would be above its band.
	excess int
	// fill is what the node would have of load and leaders, as parts of its share.
	fill float64
}

func (s *State) compareContenders(a, b *contender) (Level, int) {
	switch {
	case a.averse != b.averse && b.averse:
		return LevelLeader, -1
	case a.averse != b.averse:
		return LevelLeader, 1
	case a.disliked != b.disliked:
		return LevelLeader, a.disliked - b.disliked
	case a.excess != b.excess:
		return LevelLoad, a.excess - b.excess
	case a.fill < b.fill:
		return LevelLeaders, -1
	case a.fill > b.fill:
		return LevelLeaders, 1
	}
	return levels, cmp.Compare(s.id(a.node), s.id(b.node))
}

// bestLeader finds the best voter to lead beside the one that does, and the best that is not
// chosen.
func (s *State) bestLeader(p *partition, except uint16) (uint16, *Alternative) {
	best, second := contender{node: noNode}, contender{node: noNode}
	for _, r := range s.replicas(p) {
		if r.node == except || !s.mayLead(r) {
			continue
		}
		c := contender{node: r.node, averse: s.averse(r.node), disliked: s.disliked(p, r.node)}
		more, one := int64(p.leaderLoad)-int64(p.followerLoad), int64(1)
		if r.node == p.leads {
			more, one = 0, 0
		}
		c.excess = percentAbove(s.outside(byLoad, r.node, more))
		c.fill = s.deviation(byLoad, r.node, more) + s.deviation(byLeaders, r.node, one)
		if best.node == noNode {
			best = c
		} else if _, order := s.compareContenders(&c, &best); order < 0 {
			best, second = c, best
		} else if second.node == noNode {
			second = c
		} else if _, order := s.compareContenders(&c, &second); order < 0 {
			second = c
		}
	}
	if second.node == noNode {
		return best.node, nil
	}
	level, _ := s.compareContenders(&best, &second)
	out := &Alternative{Node: s.id(second.node), Decided: level}
	switch {
	case best.averse != second.averse:
		out.Text = "it leaves leadership to others: " + s.nodes[second.node].info.averse()
	case level == LevelLeader:
		out.Text = "its keyspace prefers leaders elsewhere"
	case level == LevelLoad:
		out.Text = fmt.Sprintf("load: it would be %d %% above what is tolerated, not %d %%",
			second.excess, best.excess)
	case level == LevelLeaders:
		out.Text = fmt.Sprintf("it leads more: %.0f %% of its share in load and number, not %.0f %%",
			100+50*second.fill, 100+50*best.fill)
	default:
		out.Text = "it is as good; the lower id is taken"
	}
	return best.node, out
}

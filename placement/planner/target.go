package planner

import (
	"cmp"
	"fmt"
	"slices"
)

// surroundings are what a search depends on where a keyspace has no rules: the zones of the voters
// that stay. While a step goes on, nodes only become busier: where no place was free there will be
// none for the next partition with the same surroundings.
type surroundings struct {
	keyspace uint16
	repair   bool
	count    uint8
	zones    [maxFactor]uint16
}

func (s *State) surroundingsOf(p *partition, rest []replica, repair bool) (surroundings, bool) {
	out := surroundings{keyspace: p.keyspace, repair: repair, count: uint8(len(rest))}
	if len(s.keyspaces[p.keyspace].masks) > 0 || len(rest) > maxFactor {
		return out, false
	}
	for i, r := range rest {
		at := i
		for ; at > 0 && out.zones[at-1] > s.nodes[r.node].zone; at-- {
			out.zones[at] = out.zones[at-1]
		}
		out.zones[at] = s.nodes[r.node].zone
	}
	return out, true
}

// candidate is a node that may be given a replica, as the objective sees it.
type candidate struct {
	node       uint16
	refused    Refusal
	violations int
	spread     spread
	// averse: it is to lead, or no voter that stays can, and it leaves that to others.
	averse bool
	// room is by how many percent its disk would be beyond DiskHigh; excess by how many percent it
	// would be above its band, in each dimension.
	room   int
	excess [byLeaders]int
	// fill is the sum of what it has in all dimensions, as parts of its share. Among nodes within
	// their bands the emptiest is best.
	fill float64
}

// compare says which of two candidates is better, and at which level.
func (s *State) compare(a, b *candidate) (Level, int) {
	switch {
	case a.refused != b.refused:
		return LevelLegal, int(a.refused) - int(b.refused)
	case a.violations != b.violations:
		return LevelLegal, a.violations - b.violations
	case a.spread.zones != b.spread.zones:
		return LevelZones, a.spread.zones - b.spread.zones
	case a.spread.regions != b.spread.regions:
		return LevelRegions, a.spread.regions - b.spread.regions
	case a.averse != b.averse && b.averse:
		return LevelLeader, -1
	case a.averse != b.averse:
		return LevelLeader, 1
	case a.room != b.room:
		return LevelRoom, a.room - b.room
	}
	for d := range byLeaders {
		if c := a.excess[d] - b.excess[d]; c != 0 {
			return d.level(), c
		}
	}
	switch {
	case a.fill < b.fill:
		return LevelCount, -1
	case a.fill > b.fill:
		return LevelCount, 1
	}
	return levels, cmp.Compare(s.nodes[a.node].info.ID, s.nodes[b.node].info.ID)
}

// betterPlaced compares only what stays after limits have passed.
func (c *candidate) betterPlaced(d *candidate) bool {
	if c.violations != d.violations {
		return c.violations < d.violations
	}
	return c.spread.less(d.spread)
}

// places is the outcome of a search for a node for one replica.
type places struct {
	// best and second are the best candidates; found tells how many of them there are.
	best, second candidate
	found        int
	// placed is the best place of those that are allowed or only busy.
	placed    candidate
	hasPlaced bool
	// passing: some node is refused only for now.
	passing bool
}

// search looks for the best node for a replica of a partition. The replica at index without, if not
// negative, is the one that goes. leads: the node is to lead as well.
func (s *State) search(p *partition, without int, repair, leads bool) places {
	var rest [maxReplicas + 1]replica
	n := 0
	for i, r := range s.replicas(p) {
		if i != without && r.role != Learner && r.role != Outgoing && !s.isBad(r) {
			rest[n] = r
			n++
		}
	}
	out := places{}
	around, plain := s.surroundingsOf(p, rest[:n], repair)
	if plain && s.full[around] {
		out.passing = true
		return out
	}
	s.searches++
	base := s.spreadOf(rest[:n])
	leads = leads || !slices.ContainsFunc(rest[:n], s.canLead)
	for i := range s.nodes {
		if !s.nodes[i].known {
			continue
		}
		c := s.assess(p, uint16(i), rest[:n+1], n, base, repair)
		if c.refused == HoldsReplica {
			continue
		}
		if c.refused.passes() && c.refused != Allowed {
			out.passing = true
		}
		if c.refused < NoRoom && (!out.hasPlaced || c.betterPlaced(&out.placed)) {
			out.placed, out.hasPlaced = c, true
		}
		if out.found == 2 && c.worseThan(&out.second) {
			continue
		}
		c.averse = leads && s.averse(c.node)
		s.fill(p, &c)
		out.keep(s, &c)
	}
	if plain && !out.usable() && out.hasPlaced && out.placed.refused != Allowed {
		s.full[around] = true
	}
	return out
}

// assess judges one node; others[n] is free for it to stand in.
func (s *State) assess(
	p *partition, node uint16, others []replica, n int, base spread, repair bool,
) candidate {
	c := candidate{node: node, refused: s.refuse(p, node, repair), spread: base}
	if !c.refused.passes() {
		return c
	}
	at := &s.nodes[node]
	for _, r := range others[:n] {
		other := &s.nodes[r.node]
		if other.zone == at.zone {
			c.spread.zones++
		}
		if other.region == at.region {
			c.spread.regions++
		}
	}
	if ks := &s.keyspaces[p.keyspace]; len(ks.masks) > 0 {
		others[n] = replica{node: node}
		c.violations = s.match(ks, others).violations
	}
	return c
}

// worseThan says whether a candidate is worse by what assess has found out.
func (c *candidate) worseThan(d *candidate) bool {
	return c.refused > d.refused || c.refused == d.refused && d.betterPlaced(c)
}

// fill adds what is known of the node itself.
func (s *State) fill(p *partition, c *candidate) {
	if !c.refused.passes() {
		return
	}
	node := c.node
	c.room = percentAbove(s.fullness(node, p.bytes) - s.settings.DiskHigh)
	for d := range byLeaders {
		more := amount(p, d)
		c.excess[d] = percentAbove(s.outside(d, node, more))
		c.fill += s.deviation(d, node, more)
	}
}

func percentAbove(x float64) int { return int(100 * max(0, x)) }

// amount is what a replica that follows adds to its node.
func amount(p *partition, d dimension) int64 {
	switch d {
	case byLoad:
		return int64(p.followerLoad)
	case byBytes:
		return p.bytes
	case byCount:
		return 1
	default:
		return 0
	}
}

// keep puts a candidate where it belongs among the best two.
func (f *places) keep(s *State, c *candidate) {
	if f.found > 0 {
		if _, order := s.compare(c, &f.best); order > 0 {
			if f.found == 1 {
				f.second, f.found = *c, 2
			} else if _, order := s.compare(c, &f.second); order < 0 {
				f.second = *c
			}
			return
		}
		f.second, f.found = f.best, 1
	}
	f.best = *c
	f.found++
}

// usable says whether the best candidate can be taken now. Where a better place is only busy, it is
// waited for: a replica in the wrong zone would have to be moved a second time.
func (f *places) usable() bool {
	return f.found > 0 && f.best.refused == Allowed && !f.placed.betterPlaced(&f.best)
}

// alternative puts the runner-up into words.
func (s *State) alternative(p *partition, f *places) *Alternative {
	if f.found < 2 {
		return nil
	}
	c := &f.second
	out := &Alternative{Node: s.nodes[c.node].info.ID, Refused: c.refused}
	if c.refused != Allowed {
		out.Text = s.refusalText(p, c.node, c.refused)
		return out
	}
	level, _ := s.compare(&f.best, c)
	out.Decided = level
	out.Text = s.levelText(level, &f.best, c)
	return out
}

// levelText says in words what decided against the second candidate.
func (s *State) levelText(level Level, best, c *candidate) string {
	switch level {
	case LevelLegal:
		return fmt.Sprintf("%s would be broken, not %d", plural(c.violations, "placement rule"),
			best.violations)
	case LevelZones:
		return fmt.Sprintf("%s of replicas would share a zone, not %d",
			plural(c.spread.zones, "pair"), best.spread.zones)
	case LevelRegions:
		return fmt.Sprintf("%s of replicas would share a region, not %d",
			plural(c.spread.regions, "pair"), best.spread.regions)
	case LevelLeader:
		return "it would lead, and leaves that to others: " +
			s.nodes[c.node].info.averse()
	case LevelRoom:
		return fmt.Sprintf("its disk would be %d %% beyond the mark, not %d %%", c.room, best.room)
	case LevelLoad, LevelBytes:
		d := dimension(level - LevelLoad)
		return fmt.Sprintf("%s: it would be %d %% above what is tolerated, not %d %%", level,
			c.excess[d], best.excess[d])
	case LevelCount:
		return fmt.Sprintf("it is fuller: %.0f %% of its share, not %.0f %%",
			100*(1+c.fill/float64(byLeaders)), 100*(1+best.fill/float64(byLeaders)))
	}
	return "it is as good; the lower id is taken"
}

// rejectedMove is the best other node for a replica, and what decided against it.
func (s *State) rejectedMove(p *partition, at int) *Alternative {
	clear(s.full)
	found := s.search(p, at, false, false)
	if found.found == 0 {
		return nil
	}
	best, own := &found.best, s.replicas(p)[at].node
	out := &Alternative{Node: s.id(best.node), Refused: best.refused}
	if best.refused != Allowed {
		out.Text = s.refusalText(p, best.node, best.refused)
		return out
	}
	x := s.inspect(p)
	stay := candidate{node: own, violations: x.violations, spread: x.spread}
	switch {
	case stay.betterPlaced(best):
		out.Decided, _ = s.compare(&stay, best)
		out.Text = s.levelText(out.Decided, &stay, best)
		return out
	case best.betterPlaced(&stay):
		out.Decided, _ = s.compare(&stay, best)
		out.Text = "it is the better place, and is waited for or used next"
		return out
	}
	out.Decided = LevelCount
	for l := LevelRoom; l < LevelLeaders; l++ {
		if s.strays(l, own, 0) > 0 {
			out.Decided = l
			out.Text = fmt.Sprintf("%s: %s is at %s, %s at %s; others gain more, or it gains too "+
				"little", l, s.id(own), percent(s.standing(l, own)), out.Node,
				percent(s.standing(l, best.node)))
			return out
		}
	}
	out.Text = fmt.Sprintf("as good, and %s is within what is tolerated: load %s of its share, "+
		"bytes %s, replicas %s", s.id(own), percent(s.deviation(byLoad, own, 0)),
		percent(s.deviation(byBytes, own, 0)), percent(s.deviation(byCount, own, 0)))
	return out
}

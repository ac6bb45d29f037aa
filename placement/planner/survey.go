package planner

// survey looks through the partitions of one node for the best to move at one level.
type survey struct {
	*State
	level     Level
	donor     uint16
	receivers []uint16
	best      pick
	// busy: limits or pauses stood in the way of some.
	busy bool
}

// pick is a move that a survey has found.
type pick struct {
	partition uint32
	to        uint16
	transfer  bool
	// gain is what the penalties of both ends lose, value that by what it costs.
	gain, value float64
	// passed is the emptiest node that the replica was refused by, and why; next the next best.
	passed  uint16
	refused Refusal
}

// delta is what moves from one node to another, by dimension.
type delta [dimensions]int64

func (d *delta) at(l Level) int64 {
	if l == LevelRoom {
		return d[byBytes]
	}
	return d[l.dimension()]
}

// available says whether a partition may be moved for balance now.
func (v *survey) available(p *partition) bool {
	if p.flags&flagFit == 0 {
		return false
	}
	if p.flags&flagFlying != 0 || v.paused(p) {
		v.busy = true
		return false
	}
	return true
}

// gain is what both ends gain by a move, 0 if that is not enough or a higher level would lose.
func (v *survey) gain(to uint16, d *delta) float64 {
	amount := d.at(v.level)
	gain := v.penalty(v.level, v.donor, 0, true) - v.penalty(v.level, v.donor, -amount, true) +
		v.penalty(v.level, to, 0, true) - v.penalty(v.level, to, amount, true)
	least := v.settings.LeastGain * v.relative(v.level, v.donor, amount) *
		v.relative(v.level, to, amount)
	if gain <= 1e-12 || gain < least {
		return 0
	}
	return gain
}

// spares says whether a move takes neither end farther out of its band at a higher level.
func (v *survey) spares(to uint16, d *delta) bool {
	for l := LevelRoom; l < v.level; l++ {
		x := d.at(l)
		if x == 0 {
			continue
		}
		if farther(v.strays(l, v.donor, 0), v.strays(l, v.donor, -x)) ||
			farther(v.strays(l, to, 0), v.strays(l, to, x)) {
			return false
		}
	}
	return true
}

func farther(before, after float64) bool {
	return max(after, -after) > max(before, -before)+1e-12
}

// triggered says whether one of the two is outside of its band.
func (v *survey) triggered(to uint16) bool {
	return v.strays(v.level, v.donor, 0) > 0 || v.strays(v.level, to, 0) < 0
}

// transfers looks at the partitions that the node leads.
func (v *survey) transfers() {
	for _, i := range v.nodes[v.donor].list {
		p := &v.partitions[i]
		if p.leads != v.donor || !v.available(p) {
			continue
		}
		d := delta{byLoad: int64(p.leaderLoad) - int64(p.followerLoad), byLeaders: 1}
		if d.at(v.level) <= 0 {
			continue
		}
		for _, r := range v.replicas(p) {
			v.probes++
			if r.node == v.donor || !v.canLead(r) || !v.triggered(r.node) ||
				v.disliked(p, r.node) > v.disliked(p, v.donor) {
				continue
			}
			if v.nodes[r.node].transfers >= v.settings.TransfersInFlight {
				v.busy = true
				continue
			}
			if gain := v.gain(r.node, &d); gain > 0 && v.spares(r.node, &d) {
				v.offer(pick{partition: i, to: r.node, transfer: true, gain: gain, value: gain,
					passed: noNode})
			}
		}
	}
}

// offer keeps a pick if it is the best so far. Between equals the partition and then the node of
// lower id wins, so that the order of the list does not matter.
func (v *survey) offer(p pick) {
	b := &v.best
	if b.gain > 0 {
		if p.value < b.value {
			return
		}
		if p.value == b.value {
			c := &v.partitions[p.partition]
			d := &v.partitions[b.partition]
			if c.id > d.id || c.id == d.id && v.id(p.to) > v.id(b.to) {
				return
			}
		}
	}
	*b = p
}

// moves looks at the replicas that are on the node.
func (v *survey) moves() {
	for _, i := range v.nodes[v.donor].list {
		p := &v.partitions[i]
		if !v.available(p) {
			continue
		}
		d := delta{byLoad: int64(p.followerLoad), byBytes: p.bytes, byCount: 1}
		if p.leads == v.donor || p.leader == v.donor {
			if v.level != LevelLoad && p.count > 1 || p.leads != p.leader {
				continue // a follower does as well
			}
			d[byLoad], d[byLeaders] = int64(p.leaderLoad), 1
		}
		if d.at(v.level) <= 0 {
			continue
		}
		v.place(i, p, &d)
	}
}

// maxTooSmall is how many receivers in a row may be too small for a replica before the search ends.
const maxTooSmall = 8

// place looks for a node for a replica. Receivers are in the order of what they would gain, so the
// first that can take it is the best.
func (v *survey) place(i uint32, p *partition, d *delta) {
	cost := float64(p.bytes + moveOverhead)
	at := pick{partition: i, passed: noNode}
	tooSmall := 0
	for _, to := range v.receivers {
		if to == v.donor {
			continue
		}
		v.probes++
		gain := v.gain(to, d)
		if gain == 0 {
			// A larger node may have room for it, where a smaller that is emptier has not.
			if tooSmall++; tooSmall == maxTooSmall {
				return
			}
			continue
		}
		if v.best.gain > 0 && gain/cost < v.best.value || !v.triggered(to) {
			return // receivers that come later gain less
		}
		refused := v.refuse(p, to, false)
		if refused == Allowed && v.worsens(p, to) {
			refused = RuleForbids
		}
		if refused == Allowed && v.senderBusy(v.leaderOf(p)) {
			refused = NodeBusy
		}
		if refused != Allowed {
			v.busy = v.busy || refused.passes()
			if at.passed == noNode && refused != HoldsReplica {
				at.passed, at.refused = to, refused
			}
			continue
		}
		if !v.spares(to, d) {
			continue
		}
		at.to, at.gain, at.value = to, gain, gain/cost
		v.offer(at)
		return
	}
}

// worsens says whether a partition would break more rules, or spread less, with a replica there.
func (v *survey) worsens(p *partition, to uint16) bool {
	replicas := v.replicas(p)
	change := spread{}
	a, b := &v.nodes[v.donor], &v.nodes[to]
	for _, r := range replicas {
		if r.node == v.donor {
			continue
		}
		n := &v.nodes[r.node]
		change.zones += same(n.zone, b.zone) - same(n.zone, a.zone)
		change.regions += same(n.region, b.region) - same(n.region, a.region)
	}
	if (spread{}).less(change) {
		return true
	}
	ks := &v.keyspaces[p.keyspace]
	if len(ks.masks) == 0 || ks.masks[to] == ks.masks[v.donor] {
		return false
	}
	var after [maxReplicas]replica
	n := copy(after[:], replicas)
	for i := range after[:n] {
		if after[i].node == v.donor {
			after[i].node = to
		}
	}
	return v.match(ks, after[:n]).violations > v.match(ks, replicas).violations
}

func same(a, b uint16) int {
	if a == b {
		return 1
	}
	return 0
}

// alternative is the emptiest node that could not take what is moved.
func (v *survey) alternative() *Alternative {
	b := &v.best
	if b.passed == noNode {
		return nil
	}
	p := &v.partitions[b.partition]
	out := &Alternative{Node: v.id(b.passed), Refused: b.refused}
	if out.Text = v.refusalText(p, b.passed, b.refused); b.refused == RuleForbids {
		out.Text = "rules or spread would suffer"
	}
	return out
}

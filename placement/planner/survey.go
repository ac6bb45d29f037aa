package planner

import "slices"

// survey looks through the partitions of one node for the best to move at one level.
type survey struct {
	*State
	level     Level
	donor     uint16
	receivers []uint16
	// over is how far the node is above its band.
	over float64
	// picks are the best found, at most maxPicks, the best first.
	picks []pick
	// busy: limits or pauses stood in the way of some.
	busy bool
}

// maxPicks is how many moves one survey finds, so that not every move costs a look through all
// that is on a node.
const maxPicks = 8

// scan finds the best moves from a node at one level: transfers where they help, since they cost
// nothing, and otherwise replicas.
func (v *survey) scan() {
	v.scans++
	v.picks, v.over = nil, v.strays(v.level, v.donor, 0)
	if v.level == LevelLoad || v.level == LevelLeaders {
		for _, i := range v.nodes[v.donor].list {
			v.transfer(i)
		}
	}
	if len(v.picks) == 0 && v.level != LevelLeaders {
		for _, i := range v.nodes[v.donor].list {
			v.move(i)
		}
	}
}

// propose makes operators of what was found. Each changes what the next would gain, so each after
// the first is looked at again.
func (v *survey) propose() []Operator {
	var out []Operator
	picks := v.picks
	for n, p := range picks {
		if n > 0 {
			if !v.gives(v.level, v.donor) || v.working >= v.settings.MaxOperators {
				break
			}
			v.picks, v.over = nil, v.strays(v.level, v.donor, 0)
			if p.transfer {
				v.transfer(p.partition)
			} else {
				v.receivers, _ = v.State.receivers(v.level)
				v.move(p.partition)
			}
			if len(v.picks) == 0 {
				continue
			}
			p = v.picks[0]
		}
		if op, ok := v.operator(&p); ok {
			out = append(out, op)
		}
	}
	return out
}

// operator makes the operator of a pick, and counts it as in flight.
func (v *survey) operator(b *pick) (Operator, bool) {
	c := v.newChange(b.partition, Replace)
	if b.transfer {
		c.kind, c.lead = Transfer, b.to
	} else {
		c.add, c.remove = b.to, v.donor
		if v.partitions[b.partition].leads == v.donor {
			c.lead = b.to
		}
	}
	c.rejected = v.alternative(b)
	c.reason = Reason{Cause: DiskFilling + Cause(v.level-LevelRoom),
		From: v.shareOf(v.donor), To: v.shareOf(b.to)}
	op, o := v.complete(c)
	if o != proposed {
		return Operator{}, false
	}
	op.Reason.From.After = v.standing(v.level, v.donor)
	op.Reason.To.After = v.standing(v.level, b.to)
	return op, true
}

func (v *survey) shareOf(n uint16) *Share {
	return &Share{Node: v.id(n), Before: v.standing(v.level, n)}
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
func (v *survey) available(i uint32) bool {
	p := &v.partitions[i]
	if v.marks[i].flags&flagFit == 0 || v.merging(i) {
		return false
	}
	if p.flying || v.paused(p) {
		v.busy = true
		return false
	}
	return true
}

// gain is what both ends gain by a move, 0 if that is not enough or a higher level would lose.
func (v *survey) gain(to uint16, d *delta) float64 {
	amount := d.at(v.level)
	gives := v.penalty(v.level, v.donor, 0, true) - v.penalty(v.level, v.donor, -amount, true)
	if v.over <= 0 && gives < 0 {
		return 0 // it would come to need something itself
	}
	gain := gives + v.penalty(v.level, to, 0, true) - v.penalty(v.level, to, amount, true)
	least := v.settings.LeastGain * v.relative(v.level, v.donor, amount) *
		v.relative(v.level, to, amount)
	if gain <= 1e-12 || gain < least {
		return 0
	}
	return gain
}

// spares says whether a move takes neither end farther out of its band at a higher level. That a
// node has too little load does not keep its bytes there: it is leaderships that it gets for that.
func (v *survey) spares(to uint16, d *delta) bool {
	for l := LevelRoom; l < v.level; l++ {
		x := d.at(l)
		if x == 0 {
			continue
		}
		idle := l == LevelLoad && d[byBytes] > 0
		if !idle && farther(v.strays(l, v.donor, 0), v.strays(l, v.donor, -x)) ||
			farther(v.strays(l, to, 0), v.strays(l, to, x)) {
			return false
		}
	}
	return true
}

// worthwhile says whether a move does not put more out of balance at a lower level than it mends at
// its own. What is moved for load has to be dense: at least as large a part of a node's load as of
// its bytes, and twice as large if that takes the bytes out of balance. Else cold partitions would
// be moved away from a hot one in great number, and then others back for the bytes.
func (v *survey) worthwhile(to uint16, d *delta) bool {
	if v.level != LevelLoad {
		return true
	}
	dense := v.relative(LevelLoad, to, d[byLoad]) / v.relative(LevelBytes, to, d[byBytes]+1)
	if dense < 1 || dense >= density {
		return dense >= density
	}
	for l := LevelBytes; l <= LevelCount; l++ {
		x := d.at(l)
		if farther(v.strays(l, v.donor, 0), v.strays(l, v.donor, -x)) ||
			farther(v.strays(l, to, 0), v.strays(l, to, x)) {
			return false
		}
	}
	return true
}

// density is the part of a node's load by the part of its bytes from which on a move for load may
// take bytes out of balance.
const density = 2

func farther(before, after float64) bool {
	return max(after, -after) > max(before, -before)+1e-12
}

// triggered says whether one of the two is outside of its band.
func (v *survey) triggered(to uint16) bool {
	return v.strays(v.level, v.donor, 0) > 0 || v.strays(v.level, to, 0) < 0
}

// transfer looks at a partition that the node may lead.
func (v *survey) transfer(i uint32) {
	p := &v.partitions[i]
	if p.leads != v.donor || !v.available(i) {
		return
	}
	d := delta{byLoad: int64(p.leaderLoad) - int64(p.followerLoad), byLeaders: 1}
	if d.at(v.level) <= 0 {
		return
	}
	best := pick{}
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
		gain := v.gain(r.node, &d)
		if gain == 0 || !v.spares(r.node, &d) {
			continue
		}
		if gain > best.gain || gain == best.gain && v.id(r.node) < v.id(best.to) {
			best = pick{partition: i, to: r.node, transfer: true, gain: gain, value: gain,
				passed: noNode}
		}
	}
	if best.gain > 0 {
		v.offer(best)
	}
}

// offer keeps a pick if it is among the best so far. Between equals the partition of lower id is
// better, so that the order of the list does not matter.
func (v *survey) offer(p pick) {
	at := len(v.picks)
	for at > 0 && v.better(&p, &v.picks[at-1]) {
		at--
	}
	if at == maxPicks {
		return
	}
	if len(v.picks) == maxPicks {
		v.picks = v.picks[:maxPicks-1]
	}
	v.picks = slices.Insert(v.picks, at, p)
}

func (v *survey) better(p, q *pick) bool {
	if p.value != q.value {
		return p.value > q.value
	}
	return v.partitions[p.partition].id < v.partitions[q.partition].id
}

// bar is the value that a move has to have to be among the best.
func (v *survey) bar() float64 {
	if len(v.picks) < maxPicks {
		return 0
	}
	return v.picks[maxPicks-1].value
}

// move looks at a partition with a replica on the node.
func (v *survey) move(i uint32) {
	p := &v.partitions[i]
	if !v.available(i) {
		return
	}
	if v.level == LevelLoad && v.over <= 0 {
		return // a node with too little load gets leaderships; bytes are not moved to keep it busy
	}
	d := delta{byLoad: int64(p.followerLoad), byBytes: p.bytes, byCount: 1}
	if p.leads == v.donor || p.leader == v.donor {
		if v.level != LevelLoad && p.count > 1 || p.leads != p.leader {
			return // a follower does as well
		}
		d[byLoad], d[byLeaders] = int64(p.leaderLoad), 1
	}
	if d.at(v.level) <= 0 {
		return
	}
	if v.senderBusy(v.leaderOf(p)) {
		v.busy = true
		return
	}
	v.place(i, p, &d)
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
		// A lead that goes along would not stay there.
		if to == v.donor || d[byLeaders] > 0 && v.averse(to) {
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
		if gain/cost < v.bar() || !v.triggered(to) {
			return // receivers that come later gain less
		}
		refused := v.refuse(p, to, false)
		if refused == Allowed && v.worsens(p, to) {
			refused = RuleForbids
		}
		if refused != Allowed {
			v.busy = v.busy || refused.passes()
			if at.passed == noNode && refused != HoldsReplica {
				at.passed, at.refused = to, refused
			}
			continue
		}
		if !v.spares(to, d) || !v.worthwhile(to, d) {
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
func (v *survey) alternative(b *pick) *Alternative {
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

// bestMove is the operator that would be proposed to bring a node nearer to its share at a level;
// nil if there is none.
func (s *State) bestMove(l Level, donor uint16) *Operator {
	v := survey{State: s, level: l, donor: donor}
	v.receivers, _ = s.receivers(l)
	if v.scan(); len(v.picks) == 0 {
		return nil
	}
	op, ok := v.operator(&v.picks[0])
	if !ok {
		return nil
	}
	s.withdraw()
	return &op
}

package propose

import (
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// survey looks through the partitions of one node, the donor, for the best moves at one level.
type survey struct {
	*Proposer
	level     planner.Level
	donor     uint16
	receivers []uint16
	// over is how far the donor is above its band.
	over float64
	// picks holds the best moves so far, at most maxPicks, the best first.
	picks []pick
	// busy: a limit or a pause stood in the way of some move.
	busy bool
}

// maxPicks is how many moves a survey finds at most. With one only, each move would cost a look at
// every partition of a node.
const maxPicks = 8

// scan finds the best moves: transfers of leadership if they help, since they cost nothing, else
// moves of replicas.
func (v *survey) scan() {
	v.scans++
	v.picks, v.over = nil, v.objective.OutsideAt(v.level, v.donor, 0)
	if v.level == planner.LevelLoad || v.level == planner.LevelLeaders {
		for _, i := range v.state.Nodes[v.donor].Partitions {
			v.transfer(i)
		}
	}
	if len(v.picks) == 0 && v.level != planner.LevelLeaders {
		for _, i := range v.state.Nodes[v.donor].Partitions {
			v.move(i)
		}
	}
}

// propose makes operators of the picks. An operator changes what the next one would gain, so each
// pick after the first is judged anew.
func (v *survey) propose() []planner.Operator {
	var out []planner.Operator
	picks := v.picks
	for n, p := range picks {
		if n > 0 {
			if !v.gives(v.level, v.donor) || v.state.Working >= v.state.Settings().MaxOperators {
				break
			}
			v.picks, v.over = nil, v.objective.OutsideAt(v.level, v.donor, 0)
			if p.transfer {
				v.transfer(p.partition)
			} else {
				v.receivers, _ = v.Proposer.receivers(v.level)
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

// operator makes the operator of a pick and counts it as in flight. It returns false if the
// operator would better nothing.
func (v *survey) operator(b *pick) (planner.Operator, bool) {
	c := newChange(b.partition, planner.Replace)
	if b.transfer {
		c.kind, c.lead = planner.Transfer, b.to
	} else {
		c.add, c.remove = b.to, v.donor
		if v.state.Partitions[b.partition].Leads == v.donor {
			c.lead = b.to
		}
	}
	c.rejected = v.alternative(b)
	c.reason = planner.Reason{Cause: planner.DiskFilling + planner.Cause(v.level-planner.LevelRoom),
		From: v.shareOf(v.donor), To: v.shareOf(b.to)}
	op, o := v.complete(c)
	if o != Proposed {
		return planner.Operator{}, false
	}
	op.Reason.From.After = v.objective.Standing(v.level, v.donor)
	op.Reason.To.After = v.objective.Standing(v.level, b.to)
	return op, true
}

// shareOf says how far a node is from its share now.
func (v *survey) shareOf(n uint16) *planner.Share {
	return &planner.Share{Node: v.state.NodeID(n), Before: v.objective.Standing(v.level, n)}
}

// pick is a move that a survey has found.
type pick struct {
	partition uint32
	to        uint16
	transfer  bool
	// gain is by how much the penalties of both ends become less, value is the gain divided by the
	// cost of the move.
	gain, value float64
	// passed is the emptiest node that was passed over, NoNode if none was; refused says why.
	passed  uint16
	refused planner.Refusal
}

// available says whether a partition may be moved for balance now.
func (v *survey) available(i uint32) bool {
	p := &v.state.Partitions[i]
	if !v.IsFit(i) || v.objective.Merging(i) {
		return false
	}
	if p.InFlight || v.state.Resting(p) {
		v.busy = true
		return false
	}
	return true
}

// transfer offers the best transfer of leadership of a partition, if the donor leads it.
func (v *survey) transfer(i uint32) {
	p := &v.state.Partitions[i]
	if p.Leads != v.donor || !v.available(i) {
		return
	}
	d := delta{planner.ByLoad: int64(p.LeaderLoad) - int64(p.FollowerLoad), planner.ByLeaders: 1}
	if d.at(v.level) <= 0 {
		return
	}
	best := pick{}
	for _, r := range v.state.Replicas(p) {
		v.probes++
		if r.Node == v.donor || !v.objective.CanLead(r) || !v.triggered(r.Node) ||
			v.objective.LeaderCost(p, r.Node) > v.objective.LeaderCost(p, v.donor) {
			continue
		}
		if v.state.Nodes[r.Node].Transfers >= v.state.Settings().TransfersInFlight {
			v.busy = true
			continue
		}
		gain := v.gain(r.Node, &d)
		if gain == 0 || !v.spares(r.Node, &d) {
			continue
		}
		if gain > best.gain || gain == best.gain && v.state.NodeID(r.Node) < v.state.NodeID(best.to) {
			best = pick{partition: i, to: r.Node, transfer: true, gain: gain, value: gain,
				passed: state.NoNode}
		}
	}
	if best.gain > 0 {
		v.offer(best)
	}
}

// offer keeps a pick if it is among the best so far. Of two picks of equal value the partition with
// the lower id is better, so that the order in which partitions are looked at does not matter.
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
	return v.state.Partitions[p.partition].ID < v.state.Partitions[q.partition].ID
}

// bar is the value that a move needs to be among the best.
func (v *survey) bar() float64 {
	if len(v.picks) < maxPicks {
		return 0
	}
	return v.picks[maxPicks-1].value
}

// move offers the best move of the replica that a partition has on the donor.
func (v *survey) move(i uint32) {
	p := &v.state.Partitions[i]
	if !v.available(i) {
		return
	}
	if v.level == planner.LevelLoad && v.over <= 0 {
		return // a node with too little load is given leaderships, not replicas
	}
	d := delta{planner.ByLoad: int64(p.FollowerLoad), planner.ByBytes: p.Bytes, planner.ByCount: 1}
	if p.Leads == v.donor || p.Leader == v.donor {
		if v.level != planner.LevelLoad && p.Count > 1 || p.Leads != p.Leader {
			return // the move of a follower does as well
		}
		d[planner.ByLoad], d[planner.ByLeaders] = int64(p.LeaderLoad), 1
	}
	if d.at(v.level) <= 0 {
		return
	}
	if v.objective.SenderBusy(v.state.LeaderOf(p)) {
		v.busy = true
		return
	}
	v.place(i, p, &d)
}

// maxTooSmall is how many receivers may be too small for a replica before the search ends.
const maxTooSmall = 8

// place looks for a node for a replica. The receivers are in the order of what they would gain, so
// the first one that can hold the replica is the best.
func (v *survey) place(i uint32, p *state.Partition, d *delta) {
	cost := float64(p.Bytes + moveOverhead)
	at := pick{partition: i, passed: state.NoNode}
	tooSmall := 0
	for _, to := range v.receivers {
		if to == v.donor || d[planner.ByLeaders] > 0 && v.objective.AvoidsLeading(to) {
			continue
		}
		v.probes++
		gain := v.gain(to, d)
		if gain == 0 {
			// A larger node may gain from a replica that is too large for a smaller and emptier one.
			if tooSmall++; tooSmall == maxTooSmall {
				return
			}
			continue
		}
		if gain/cost < v.bar() || !v.triggered(to) {
			return // the receivers that follow gain less
		}
		refused := v.objective.Refuse(p, to, false)
		if refused == planner.Allowed && v.worsens(p, to) {
			refused = planner.RuleForbids
		}
		if refused != planner.Allowed {
			v.busy = v.busy || refused.Passes()
			if at.passed == state.NoNode && refused != planner.HoldsReplica {
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

// alternative is the emptiest node that was passed over, and why; nil if none was.
func (v *survey) alternative(b *pick) *planner.Alternative {
	if b.passed == state.NoNode {
		return nil
	}
	p := &v.state.Partitions[b.partition]
	out := &planner.Alternative{Node: v.state.NodeID(b.passed), Refused: b.refused}
	if out.Text = v.objective.RefusalText(p, b.passed, b.refused); b.refused == planner.RuleForbids {
		out.Text = "rules or spread would suffer"
	}
	return out
}

// BestMove returns the operator that would be proposed first to bring a node nearer to its share at
// a level; nil if there is none. Nothing is counted as in flight.
func (pr *Proposer) BestMove(l planner.Level, donor uint16) *planner.Operator {
	v := survey{Proposer: pr, level: l, donor: donor}
	v.receivers, _ = pr.receivers(l)
	if v.scan(); len(v.picks) == 0 {
		return nil
	}
	op, ok := v.operator(&v.picks[0])
	if !ok {
		return nil
	}
	pr.state.Withdraw()
	return &op
}

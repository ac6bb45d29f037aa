package server

import (
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// merging is how merges go in a fleet.
type merging struct {
	// freezing is how long it takes until all replicas of the right one have the freeze; after 5 s
	// without that the left one's leader takes the attempt back.
	freezing time.Duration
	// lags is for how long the leader of what was consumed still reports it, frozen.
	lags time.Duration
	// consumed are the ids of partitions that were; attempts how often one was frozen.
	consumed map[uint64]bool
	attempts int
	// ghosts are partitions as replicas that lag still have them.
	ghosts []ghost
}

type ghost struct {
	d      *clusterpb.Partition
	leader uint64
	until  time.Time
}

// consumption is an attempt that the leader of the left one makes.
type consumption struct {
	target *clusterpb.Partition
	node   uint64
	began  time.Time
}

// consumeLocked does what a leader does with the order to consume: it has the right one frozen.
// What comes of that is for advanceMergesLocked.
func (f *fleet) consumeLocked(p *fleetPartition, o *clusterpb.Order) {
	right := f.parts[o.Consume.Id]
	if right == nil || right.leader != p.leader || o.Target.Membership != p.d.Membership ||
		p.d.Frozen != nil || p.attempt != nil {
		return
	}
	want := max(p.d.Generation, right.d.Generation) + 1
	if o.Target.Generation != want {
		return // late
	}
	if string(o.Target.End) != string(right.d.End) || string(p.d.End) != string(right.d.Start) ||
		o.Consume.Frozen != nil {
		f.t.Errorf("partition %d: a merge that cannot be: %v", p.d.Id, o)
		return
	}
	going := right.d.Frozen != nil && steps.FreezesFor(right.d.Frozen, p.d) &&
		o.Consume.Membership+1 == right.d.Membership
	if !going && (o.Consume.Membership != right.d.Membership || right.d.Frozen != nil) {
		return
	}
	if !steps.Together(p.d, right.d) {
		f.t.Errorf("partitions %d and %d are not on the same nodes: %v, %v", p.d.Id, right.d.Id, p.d,
			right.d)
		return
	}
	p.attempt = &consumption{proto.Clone(o.Target).(*clusterpb.Partition), p.leader, time.Now()}
	if going || !f.quorumLocked(right) {
		return
	}
	f.merging.attempts++
	right.d = proto.Clone(right.d).(*clusterpb.Partition)
	right.d.Membership++
	right.d.Frozen = &clusterpb.Freeze{Partition: p.d.Id, Generation: p.d.Generation,
		Membership: p.d.Membership}
}

func (f *fleet) quorumLocked(p *fleetPartition) bool {
	members := group.ConfigurationOf(p.d)
	return members.Quorum(func(id keys.ReplicaID) bool {
		return f.answersLocked(p, steps.ReplicaOf(p.d, uint64(id)))
	})
}

// advanceMergesLocked has attempts end, and what is frozen for an epoch that is over thaw.
func (f *fleet) advanceMergesLocked() {
	now := time.Now()
	for _, right := range f.parts {
		freeze := right.d.Frozen
		if freeze == nil {
			continue
		}
		left := f.parts[freeze.Partition]
		if left == nil || !steps.FreezesFor(freeze, left.d) {
			if f.quorumLocked(right) {
				right.d = proto.Clone(right.d).(*clusterpb.Partition)
				right.d.Membership++
				right.d.Frozen = nil
			}
			continue
		}
		a := left.attempt
		if a == nil {
			continue // its leader has just begun to lead, and knows nothing of it
		}
		all := right.leader == left.leader
		for _, r := range right.d.Replicas {
			all = all && f.answersLocked(right, r)
		}
		switch {
		case all && now.Sub(a.began) >= f.merging.freezing && f.quorumLocked(left):
			left.d, left.bytes, left.attempt = a.target, left.bytes+right.bytes, nil
			left.split, left.reporting = now, f.reporting
			f.merging.ghosts = append(f.merging.ghosts, ghost{right.d, right.leader,
				now.Add(f.merging.lags)})
			f.merging.consumed[right.d.Id] = true
			delete(f.parts, right.d.Id)
		case now.Sub(a.began) >= 5*time.Second && f.quorumLocked(left):
			left.d = proto.Clone(left.d).(*clusterpb.Partition)
			left.d.Membership++
			left.attempt = nil
		}
	}
	for _, p := range f.parts {
		if a := p.attempt; a != nil && (a.node != p.leader || a.target.Membership != p.d.Membership ||
			now.Sub(a.began) >= 10*time.Second) {
			p.attempt = nil
		}
	}
}

// ghostsLocked are the reports of a node of what was consumed.
func (f *fleet) ghostsLocked(node uint64) (reports []*clusterpb.PartitionReport) {
	for _, g := range f.merging.ghosts {
		if g.leader == node && time.Now().Before(g.until) {
			reports = append(reports, &clusterpb.PartitionReport{Partition: g.d.Id, Term: 100,
				Generation: g.d.Generation, Membership: g.d.Membership,
				Described: proto.Clone(g.d).(*clusterpb.Partition)})
		}
	}
	return reports
}

// weather loses orders, and has them come late, or twice.
type weather struct {
	random *rand.Rand
	late   []lateOrder
}

type lateOrder struct {
	node  uint64
	order *clusterpb.Order
}

// arrivingLocked are the orders that reach a node.
func (f *fleet) arrivingLocked(node uint64, orders []*clusterpb.Order) []*clusterpb.Order {
	w := f.weather
	if w == nil {
		return orders
	}
	var arrive []*clusterpb.Order
	for _, o := range orders {
		switch w.random.IntN(5) {
		case 0:
			continue
		case 1:
			w.late = append(w.late, lateOrder{node, o})
			continue
		case 2:
			w.late = append(w.late, lateOrder{node, o})
		}
		arrive = append(arrive, o)
	}
	var rest []lateOrder
	for _, l := range w.late {
		if l.node == node && w.random.IntN(4) == 0 {
			arrive = append(arrive, l.order)
		} else {
			rest = append(rest, l)
		}
	}
	w.late = rest
	return arrive
}

package steps

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// partitionOn is a partition with voters on nodes 1 to n.
func partitionOn(n uint64) *clusterpb.Partition {
	d := wholePartition()
	for i := uint64(1); i <= n; i++ {
		d.Replicas = append(d.Replicas, &clusterpb.Replica{Node: i, Replica: i})
	}
	return d
}

// TestOperatorsModel: whatever becomes of the orders (late, twice, never), wherever the lead goes,
// and whenever it is cancelled, an operator that moves, adds or removes a replica comes to an end
// by legal steps, never leaves the leader out, and at its end the replicas are those of before or
// those that were wanted. No replica id comes twice.
func TestOperatorsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.Uint64Range(1, 3).Draw(t, "factor")
		d := partitionOn(factor)
		used := map[uint64]bool{}
		for id := range factor {
			used[id+1] = true
		}
		for number := range rapid.IntRange(1, 4).Draw(t, "operators") {
			o := &serverpb.Operator{Id: uint64(number)}
			if rapid.IntRange(0, 3).Draw(t, "split") == 0 {
				d = splitModel(t, d, used)
				continue
			}
			before := nodeList(d)
			after := slices.Clone(before)
			kind := rapid.SampledFrom([]string{"move", "add", "remove"}).Draw(t, "kind")
			if kind != "add" {
				out := rapid.SampledFrom(d.Replicas).Draw(t, "out")
				o.RemoveReplica, o.Lead = out.Replica, Wanted(d) == out.Replica
				after = slices.DeleteFunc(after, func(n uint64) bool { return n == out.Node })
			}
			if kind != "remove" {
				o.AddNode, o.AddReplica = rapid.Uint64Range(1, 7).Draw(t, "to"), NextReplica(d)
				o.Lead = o.Lead && kind == "move"
				if slices.Contains(before, o.AddNode) {
					continue
				}
				if used[o.AddReplica] {
					t.Fatalf("replica id %d comes again", o.AddReplica)
				}
				after = append(after, o.AddNode)
			}
			if len(after) == 0 {
				continue
			}
			slices.Sort(after)
			leader := rapid.SampledFrom(d.Replicas).Draw(t, "leader").Replica
			if rapid.IntRange(0, 3).Draw(t, "transfer") == 0 {
				to := rapid.SampledFrom(d.Replicas).Draw(t, "lead").Replica
				o = &serverpb.Operator{Id: uint64(number), LeadReplica: to}
				if d, _ = carryOut(t, o, d, leader, used); !o.Cancelled && Wanted(d) != to {
					t.Fatalf("replica %d was to lead, and %d is wanted", to, Wanted(d))
				}
				if now := nodeList(d); !slices.Equal(now, before) {
					t.Fatalf("a transfer made %v of %v", now, before)
				}
				continue
			}
			var old []*clusterpb.Order
			d, old = carryOut(t, o, d, leader, used)
			switch now := nodeList(d); {
			case slices.Equal(now, after):
				if o.Lead && o.AddReplica != 0 && !o.Cancelled && Wanted(d) != o.AddReplica {
					t.Fatalf("the one that went was to lead, and %d is to lead now", Wanted(d))
				}
			case !o.Cancelled || !slices.Equal(now, before):
				t.Fatalf("from %v to %v it ended with %v", before, after, now)
			}
			for _, late := range old {
				if late.TransferTo == 0 && fits(late, d) {
					t.Fatalf("an order of a step that is over fits: %v", late)
				}
			}
		}
	})
}

// fits says whether the leader of a partition carries an order out that hands over no lead.
func fits(o *clusterpb.Order, d *clusterpb.Partition) bool {
	generation, membership := o.Target.Generation, o.Target.Membership-1
	if o.Child != nil {
		generation, membership = generation-1, o.Target.Membership
	}
	return generation == d.Generation && membership == d.Membership
}

// splitModel has a partition split, and gives what is left of it.
func splitModel(t *rapid.T, d *clusterpb.Partition, used map[uint64]bool) *clusterpb.Partition {
	if rapid.IntRange(0, 4).Draw(t, "learner") == 0 {
		// One that nothing carries on.
		d = proto.Clone(d).(*clusterpb.Partition)
		id := NextReplica(d)
		d.Replicas = append(d.Replicas, &clusterpb.Replica{Node: 9, Replica: id,
			Role: clusterpb.ReplicaRole_LEARNER})
		d.Membership++
	}
	key := keys.InternalKey(d, fmt.Appendf(nil, "%06d", 999_999-d.Generation))
	o, err := NewSplit(d, key)
	if err != nil {
		t.Fatal(err)
	}
	o.Id, o.Child = 77, 1000+d.Generation
	before := d
	d, old := carryOut(t, o, d, electable(d, 0), used)
	switch {
	case d.Generation == before.Generation+1 && bytes.Equal(d.End, key):
		for _, r := range d.Replicas {
			if r.Role != clusterpb.ReplicaRole_VOTER {
				t.Fatalf("it split while a replica did not vote: %v", d)
			}
		}
	case !o.Cancelled || d.Generation != before.Generation ||
		!keys.PartitionSpan(d).Equal(keys.PartitionSpan(before)):
		t.Fatalf("cancelled: %v; of %v it made %v", o.Cancelled, before, d)
	}
	for _, late := range old {
		if fits(late, d) {
			t.Fatalf("an order of a step that is over fits: %v", late)
		}
	}
	d = proto.Clone(d).(*clusterpb.Partition)
	d.NextReplica = NextReplica(d)
	d.Replicas = slices.DeleteFunc(d.Replicas, func(r *clusterpb.Replica) bool {
		return r.Role == clusterpb.ReplicaRole_LEARNER
	})
	return d
}

func nodeList(d *clusterpb.Partition) (nodes []uint64) {
	for _, r := range d.Replicas {
		nodes = append(nodes, r.Node)
	}
	slices.Sort(nodes)
	return nodes
}

// carryOut plays an operator to its end. It gives the descriptor, and the orders that there were.
func carryOut(t *rapid.T, o *serverpb.Operator, d *clusterpb.Partition, leader uint64,
	used map[uint64]bool) (*clusterpb.Partition, []*clusterpb.Order) {
	var old []*clusterpb.Order
	for range 100 {
		if rapid.IntRange(0, 9).Draw(t, "cancel") == 0 && !o.Cancelled {
			o.Cancelled, o.CancelledAt = true, d.Membership
		}
		at := ReplicaOf(d, leader)
		down := rapid.Uint64Range(0, 20).Draw(t, "down")
		slow := rapid.Uint64Range(0, 20).Draw(t, "slow")
		next := Next(o, d, keys.NodeID(at.Node), ranksOf([]uint64{down}, []uint64{slow}))
		if next.Done {
			return d, old
		}
		if next.Order == nil && down != 0 {
			continue
		}
		if next.Order == nil {
			t.Fatalf("%s, in %v", next.Text, d)
		}
		old = append(old, next.Order)
		switch rapid.IntRange(0, 3).Draw(t, "fate") {
		case 0: // lost
			continue
		case 1: // an earlier one comes, late
			next.Order = rapid.SampledFrom(old).Draw(t, "late")
		}
		if to := next.Order.TransferTo; to != 0 {
			if next.Order.Target.Membership == d.Membership {
				leader = to
			}
			continue
		}
		target := next.Order.Target
		if !fits(next.Order, d) {
			continue // the node leaves it alone
		}
		if c := next.Order.Child; c != nil && (!bytes.Equal(c.Start, target.End) ||
			!bytes.Equal(c.End, d.End) || c.Id != o.Child || c.SplitFrom != d.Id ||
			!slices.EqualFunc(c.Replicas, d.Replicas, func(a, b *clusterpb.Replica) bool {
				return proto.Equal(a, b)
			})) {
			t.Fatalf("of %v splits off %v", d, c)
		}
		from, to := group.ConfigurationOf(d), group.ConfigurationOf(target)
		if !from.Equal(&to) {
			if err := from.CanBecome(&to); err != nil {
				t.Fatalf("%s: %v", next.Text, err)
			}
			if !to.Electable(keys.ReplicaID(leader)) {
				t.Fatalf("%s: it leaves out the leader, which refuses", next.Text)
			}
		}
		d = proto.Clone(target).(*clusterpb.Partition)
		for _, r := range d.Replicas {
			used[r.Replica] = true
		}
		if rapid.IntRange(0, 4).Draw(t, "election") == 0 {
			leader = electable(d, rapid.IntRange(0, 2).Draw(t, "elected"))
		}
	}
	t.Fatalf("operator %v does not end: %v", o, d)
	return nil, nil
}

// electable is one of the replicas that can lead.
func electable(d *clusterpb.Partition, n int) uint64 {
	var can []uint64
	for _, r := range d.Replicas {
		if r.Role != clusterpb.ReplicaRole_LEARNER {
			can = append(can, r.Replica)
		}
	}
	return can[n%len(can)]
}

package route

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
)

// Reads are spread evenly over nodes that have different partitions, in whatever order these were
// placed.
func TestSharesOfManyNodes(t *testing.T) {
	for _, count := range []int{3, 5, 6, 9, 12} {
		for beginning := range uint64(9) {
			s, counts := &Sender{beginning: beginning}, make([]int, count)
			const partitions = 720
			for i := range partitions {
				p := &Partition{ID: keys.PartitionID(100 + i)}
				var all []*nodes.Node
				for r := range 3 { // one after the other
					all = append(all, &nodes.Node{ID: keys.NodeID((i+r)%count + 1)})
				}
				counts[s.share(p, all, false).ID-1]++
			}
			for id, reads := range counts {
				if fair := partitions / count; reads < fair*6/10 || reads > fair*14/10 {
					t.Errorf("%d nodes, from %d: node %d has %d of %d partitions", count, beginning, id+1,
						reads, partitions)
				}
			}
		}
	}
}

// equallyFar are partitions with the same three replicas.
func equallyFar(t *testing.T, count int) (three []*nodes.Node, all []*Partition) {
	three = someNodes(t, 3)
	for i := range count {
		all = append(all, &Partition{ID: keys.PartitionID(100 + i), Hints: table.NewHints(),
			Voters: []*nodes.Node{three[i%3], three[(i+1)%3], three[(i+2)%3]}})
	}
	return three, all
}

// Replicas that are equally far share the reads evenly, whatever queues there are before some of
// them; each partition has its own.
func TestEquallyFarReplicasShareReads(t *testing.T) {
	three, all := equallyFar(t, 24)
	s, now := &Sender{beginning: 7}, time.Now()
	for _, n := range three {
		n.Latency.Observe(300*time.Microsecond, now)
	}
	counts, of := make(map[*nodes.Node]int), make(map[*Partition]*nodes.Node)
	for i := range 2400 {
		p := all[i%len(all)]
		n, _ := s.nearest(p, &Near{}, nil)
		if counts[n]++; of[p] != nil && of[p] != n {
			t.Fatalf("partition %d goes to node %d and to node %d", p.ID, of[p].ID, n.ID)
		}
		of[p] = n
		took := 300 * time.Microsecond
		if n == three[0] && i%20 != 0 {
			took = 20 * time.Millisecond // most wait behind others there
		}
		n.Latency.Observe(took, now.Add(time.Duration(i)*time.Millisecond))
	}
	for n, count := range counts {
		if count < 640 || count > 960 {
			t.Errorf("node %d answers %d of 2400 reads", n.ID, count)
		}
	}
}

// A node that owes far more answers than the others is passed over, unless the read is to stay.
func TestBusyNodeIsPassedOver(t *testing.T) {
	three, all := equallyFar(t, 1)
	s := new(Sender)
	for range 64 {
		n, _ := s.nearest(all[0], &Near{}, nil)
		n.Owed.Add(1)
	}
	for _, n := range three {
		if owed := n.Owed.Load(); owed < 64/3*7/10 || owed > 64/3*3/2 {
			t.Errorf("node %d owes %d of 64 answers", n.ID, owed)
		}
	}
	first, _ := s.nearest(all[0], &Near{Stay: true}, nil)
	first.Owed.Add(1000)
	if n, _ := s.nearest(all[0], &Near{Stay: true}, nil); n != first {
		t.Error("it did not stay")
	}
	if n, _ := s.nearest(all[0], &Near{}, nil); n == first {
		t.Error("the busy one was asked")
	}
}

package route

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// The shortest latency of the last seconds counts, if it has changed by a tenth.
func TestLatencyIsTheShortest(t *testing.T) {
	var l latency
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	see := func(took, want time.Duration) {
		t.Helper()
		if l.observe(took, now); l.known() != want {
			t.Fatalf("%v is known after an answer that took %v, not %v", l.known(), took, want)
		}
	}
	if l.known() != 0 {
		t.Fatal(l.known())
	}
	see(100*ms, 100*ms)
	see(95*ms, 100*ms) // no change by a tenth
	for range 1000 {   // there is a queue
		see(500*ms, 100*ms)
	}
	see(20*ms, 20*ms) // a shorter way counts at once
	now = now.Add(latencyWindow)
	see(70*ms, 20*ms) // that of the window before still counts
	see(60*ms, 20*ms)
	now = now.Add(latencyWindow)
	see(90*ms, 60*ms)
	see(62*ms, 60*ms)
	now = now.Add(2 * latencyWindow) // nothing was heard of it for a whole window
	see(200*ms, 200*ms)
	now = now.Add(-time.Hour) // the clock is set back
	see(300*ms, 200*ms)
	now = now.Add(latencyWindow)
	see(300*ms, 300*ms)
}

// Reads are spread evenly over nodes that have different partitions, in whatever order these were
// placed.
func TestSharesOfManyNodes(t *testing.T) {
	for _, nodes := range []int{3, 5, 6, 9, 12} {
		for beginning := range uint64(9) {
			s, counts := &Sender{beginning: beginning}, make([]int, nodes)
			const partitions = 720
			for i := range partitions {
				p := &Partition{ID: keys.PartitionID(100 + i)}
				var all []*node
				for r := range 3 { // one after the other
					all = append(all, &node{id: keys.NodeID((i+r)%nodes + 1)})
				}
				counts[s.share(p, all, false).id-1]++
			}
			for id, count := range counts {
				if fair := partitions / nodes; count < fair*6/10 || count > fair*14/10 {
					t.Errorf("%d nodes, from %d: node %d has %d of %d partitions", nodes, beginning, id+1,
						count, partitions)
				}
			}
		}
	}
}

// equallyFar are partitions with the same three replicas.
func equallyFar(count int) (nodes []*node, all []*Partition) {
	for i := range 3 {
		nodes = append(nodes, &node{id: keys.NodeID(i + 1)})
	}
	for i := range count {
		all = append(all, &Partition{ID: keys.PartitionID(100 + i), hint: newLeaderHint(),
			voters: []*node{nodes[i%3], nodes[(i+1)%3], nodes[(i+2)%3]}})
	}
	return nodes, all
}

// Replicas that are equally far share the reads evenly, whatever queues there are before some of
// them; each partition has its own.
func TestEquallyFarReplicasShareReads(t *testing.T) {
	nodes, all := equallyFar(24)
	s, now := &Sender{beginning: 7}, time.Now()
	for _, n := range nodes {
		n.latency.observe(300*time.Microsecond, now)
	}
	counts, of := make(map[*node]int), make(map[*Partition]*node)
	for i := range 2400 {
		p := all[i%len(all)]
		n, _ := s.nearest(p, &Near{}, nil)
		if counts[n]++; of[p] != nil && of[p] != n {
			t.Fatalf("partition %d goes to node %d and to node %d", p.ID, of[p].id, n.id)
		}
		of[p] = n
		took := 300 * time.Microsecond
		if n == nodes[0] && i%20 != 0 {
			took = 20 * time.Millisecond // most wait behind others there
		}
		n.latency.observe(took, now.Add(time.Duration(i)*time.Millisecond))
	}
	for n, count := range counts {
		if count < 640 || count > 960 {
			t.Errorf("node %d answers %d of 2400 reads", n.id, count)
		}
	}
}

// A node that owes far more answers than the others is passed over, unless the read is to stay.
func TestBusyNodeIsPassedOver(t *testing.T) {
	nodes, all := equallyFar(1)
	s := new(Sender)
	for range 64 {
		n, _ := s.nearest(all[0], &Near{}, nil)
		n.owed.Add(1)
	}
	for _, n := range nodes {
		if owed := n.owed.Load(); owed < 64/3*7/10 || owed > 64/3*3/2 {
			t.Errorf("node %d owes %d of 64 answers", n.id, owed)
		}
	}
	first, _ := s.nearest(all[0], &Near{Stay: true}, nil)
	first.owed.Add(1000)
	if n, _ := s.nearest(all[0], &Near{Stay: true}, nil); n != first {
		t.Error("it did not stay")
	}
	if n, _ := s.nearest(all[0], &Near{}, nil); n == first {
		t.Error("the busy one was asked")
	}
}

// Of very many replicas, what is known of the oldest is forgotten.
func TestReplicasAreBounded(t *testing.T) {
	var r replicas
	now := time.Now()
	nodes := make([]*node, 20)
	for i := range nodes {
		nodes[i] = &node{id: keys.NodeID(i + 1)}
		r.refuses(nodes[i], now.Add(time.Duration(i)))
	}
	if len(r.all) != maxReplicas {
		t.Fatal(len(r.all))
	}
	if r.leaves(nodes[0], &Near{}, now) || !r.leaves(nodes[19], &Near{}, now) ||
		r.leaves(nodes[19], &Near{}, now.Add(2*leftAloneFor)) {
		t.Error("the wrong ones are left alone")
	}
}

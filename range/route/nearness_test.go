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
}

// Replicas that are equally far share the reads evenly, whatever queues there are before some of them.
func TestEquallyFarReplicasShareReads(t *testing.T) {
	nodes, p := make([]*node, 3), &Partition{hint: newLeaderHint()}
	for i := range nodes {
		nodes[i] = &node{id: keys.NodeID(i + 1)}
		p.voters = append(p.voters, nodes[i])
	}
	s, now := new(Sender), time.Now()
	const reads = 3000
	counts := make(map[*node]int)
	for i := range reads {
		n, _ := s.nearest(p, &Near{}, nil, uint64(i))
		counts[n]++
		took := 300 * time.Microsecond
		if n == nodes[0] && i%20 != 0 {
			took = 20 * time.Millisecond // most wait behind others there
		}
		n.latency.observe(took, now.Add(time.Duration(i)*time.Millisecond))
	}
	for n, count := range counts {
		if fair := reads / len(nodes); count < fair*8/10 || count > fair*12/10 {
			t.Errorf("node %d answers %d of %d reads", n.id, count, reads)
		}
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

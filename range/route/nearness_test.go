package route

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A latency counts when it has changed by a tenth, and not before.
func TestLatencyIsSmooth(t *testing.T) {
	var l latency
	const ms = time.Millisecond
	if l.known() != 0 {
		t.Fatal(l.known())
	}
	l.observe(100 * ms)
	if l.known() != 100*ms {
		t.Fatal(l.known())
	}
	for i := range 1000 { // it moves between 95 and 105
		l.observe(95*ms + time.Duration(i%2)*10*ms)
		if l.known() != 100*ms {
			t.Fatal("it flaps:", l.known())
		}
	}
	l.observe(500 * ms) // one is not enough to be anywhere near that
	if l.known() > 160*ms || l.known() == 100*ms {
		t.Fatal(l.known())
	}
	for range 100 {
		l.observe(20 * ms)
	}
	if l.known() > 23*ms || l.known() < 20*ms {
		t.Fatal(l.known())
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

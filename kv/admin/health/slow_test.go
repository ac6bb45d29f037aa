package health

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

func TestJudgeSlow(t *testing.T) {
	const ms = time.Millisecond
	trips := func(a, b uint64, toA, toB time.Duration) map[uint64]time.Duration {
		return map[uint64]time.Duration{a: toA, b: toB}
	}
	nodes := []admin.NodeInfo{
		{ID: 1, Address: "10.0.0.1:7400", Alive: true, ProcessorWait: ms,
			RoundTrips: trips(2, 3, ms, 2*ms)},
		{ID: 2, Address: "10.0.0.2:7400", Alive: true, ProcessorWait: 2 * ms,
			RoundTrips: trips(1, 3, ms, 3*ms)},
		{ID: 3, Address: "10.0.0.3:7400", Alive: true, ProcessorWait: ms,
			RoundTrips: trips(1, 2, 2*ms, 3*ms)}}
	core := admin.Core{Members: []admin.CoreMemberInfo{
		{ID: 1, Address: "10.0.0.1:7400", Answers: true, Health: &admin.CoreMemberHealth{}},
		{ID: 2, Address: "10.0.0.2:7400", Answers: true, Health: &admin.CoreMemberHealth{}},
		{ID: 3, Address: "10.0.0.9:7400", Answers: true, Health: &admin.CoreMemberHealth{}}}}
	expect := func(what string, want ...string) {
		t.Helper()
		var p Problems
		p.judgeSlow(nodes, core)
		if !slices.Equal(p.Unhealthy.Names, want) {
			t.Errorf("%s: %q, and not %q", what, p.Unhealthy.Names, want)
		}
	}
	expect("all is well")
	nodes[2].ProcessorWait = 81234 * time.Microsecond
	expect("a processor is slow", "node 3 (10.0.0.3:7400): its processor is slow, its process waits "+
		"81ms for one, others wait 2ms")
	nodes[1].ProcessorWait = 90 * ms
	expect("most processors are slow")
	nodes[1].ProcessorWait, nodes[2].ProcessorWait = 0, 0
	nodes[0].RoundTrips[3], nodes[1].RoundTrips[3] = 40*ms, 41*ms
	nodes[2].RoundTrips = trips(1, 2, 40*ms, 41*ms)
	expect("a network is slow", "node 3 (10.0.0.3:7400): its network is slow, a message to it and "+
		"back takes 40ms, between others 1ms")
	nodes[2].Region = "far"
	expect("the slow server is in another region")
	for i, wait := range []time.Duration{ms, ms, 100 * ms} {
		core.Members[i].Health.ProcessorWait = wait
	}
	expect("the server of a core member is slow", "core member 3 (10.0.0.9:7400): its processor is "+
		"slow, its process waits 100ms for one, others wait 1ms")
}

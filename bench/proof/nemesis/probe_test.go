package main

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func TestProbeKeysCoverEveryPartition(t *testing.T) {
	for i, key := range fleet.PartitionKeys(16) {
		if at := keys.HashPartition([]byte(key), 16); int(at) != i {
			t.Errorf("key %q of partition %d lies in %d", key, i, at)
		}
	}
}

// A probe gives a request the time that the links of its own partition take, and no more.
func TestProbesBearSlowLinks(t *testing.T) {
	p := &probes{}
	p.mu.detours = make([]time.Duration, 2)
	l := newLayers(&notedNetwork{shapes: map[links.Link]links.Shape{}})
	layer, err := l.add(around(6, true, true, true, links.Shape{Delay: 170 * ms}))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, want ...time.Duration) {
		t.Helper()
		p.bear(l.now(), [][]int{{3, 4, 6}, {3, 4, 5}})
		for i := range want {
			if got := p.patience(i); got != want[i] {
				t.Errorf("%s: partition %d has %v, want %v", what, i, got, want[i])
			}
		}
	}
	check("slow", 1180*ms, probePatience)
	if err := l.set(layer, nil); err != nil {
		t.Fatal(err)
	}
	check("whole again", probePatience, probePatience)
}

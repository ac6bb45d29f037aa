package memory

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

func TestPercentFor(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {96 << 20, 400}, {192 << 20, 200}, {384 << 20, 100}, {768 << 20,
		50}, {8 << 30, 50}} {
		if got := percentFor(c.live, maxGCPercent); got != c.want {
			t.Errorf("%d MiB live: %d %%, want %d", c.live>>20, got, c.want)
		}
	}
}

// The collector gets what block caches and memtables outside of its heap leave of the limit, also
// if their sizes were given.
func TestLimitOfCollector(t *testing.T) {
	const limit = 4 << 30
	by := func(c Collector) int64 { return ofGo(limit, c.needs(), true) }
	own := by(Collector{})
	if all := ofGo(limit, (&Collector{}).needs(), false); all != limit || own >= limit {
		t.Errorf("%d bytes, and %d without tables in Go's heap", all, own)
	}
	const cache = 3 << 30
	for name, c := range map[string]Collector{"the cache": {Cache: cache},
		"a memtable":                {Cache: 1 << 20, MemTable: 720 << 20},
		"the memtables of the logs": {LogMemTable: 300 << 20}} {
		if got := by(c); got > limit-cache && c.LogMemTable == 0 || got >= own {
			t.Errorf("%s was given: %d bytes", name, got)
		}
	}
}

func TestCollectorTunerLeavesSmallChanges(t *testing.T) {
	var set []int
	tuner := &collectorTuner{percent: 400, most: maxGCPercent, set: func(percent int) {
		set = append(set, percent)
	}}
	for _, live := range []uint64{10 << 20, 192 << 20, 194 << 20, 384 << 20, 767 << 20, 768 << 20,
		2 << 30, 1} {
		tuner.adjust(live)
	}
	if want := []int{200, 100, 50, 400}; !slices.Equal(set, want) {
		t.Errorf("set %v, want %v", set, want)
	}
}

// It goes on from one collection to the next.
func TestCollectorTunerWatches(t *testing.T) {
	var calls atomic.Int64
	// A percentage that no heap gives, so that each adjustment changes it. The tuner outlives the
	// test: it must not wait for anything.
	tuner := &collectorTuner{percent: -1000, most: maxGCPercent}
	tuner.set = func(int) { tuner.percent = -1000; calls.Add(1) }
	tuner.watch()
	for calls.Load() < 3 {
		runtime.GC()
	}
}

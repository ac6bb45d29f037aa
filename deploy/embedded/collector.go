package embedded

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A server's heap holds its block cache and memtables, some hundred MiB that hardly change, and
// what requests leave behind, which is small and short-lived. Go's default lets garbage grow to the
// size of all that is live: too little for a server with nothing in its caches, which would collect
// all the time, and needlessly much for a full one. So the garbage may have gcHeadroom, whatever is
// live, as far as the percentage stays within its bounds.
const (
	gcHeadroom                 = 384 << 20
	minGCPercent, maxGCPercent = 50, 400
	// maxCoreGCPercent is the highest of a process whose servers are members of the core only, and so
	// have no data in their caches.
	maxCoreGCPercent             = 200
	liveHeap                     = "/gc/heap/live:bytes"
	smallestChangeOfPercent uint = 10
)

// TuneCollector sets the garbage collector up for a process that does little else than run servers.
// gogc is what its environment says (GOGC: see the documentation of Go), and decides if it says
// anything. coreOnly: none of the servers is a data node. Call it once.
func TuneCollector(gogc string, coreOnly bool) {
	if gogc != "" {
		return
	}
	most := maxGCPercent
	if coreOnly {
		most = maxCoreGCPercent
	}
	t := &collectorTuner{percent: most, most: most,
		set: func(percent int) { debug.SetGCPercent(percent) }}
	debug.SetGCPercent(t.percent)
	t.watch()
}

// collectorTuner sets the percentage anew after each collection.
type collectorTuner struct {
	// percent is what is set, most the highest that may be.
	percent, most int
	set           func(percent int)
}

// watch has adjust called after the next collection, by a finalizer: the runtime's own goroutine
// runs it.
func (t *collectorTuner) watch() {
	// Not a tiny object: those share their finalizer with neighbours.
	mark := new([64]byte)
	runtime.SetFinalizer(mark, func(*[64]byte) {
		sample := []metrics.Sample{{Name: liveHeap}}
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			t.adjust(sample[0].Value.Uint64())
		}
		t.watch()
	})
}

// adjust sets the percentage for so many live bytes, if it is not much the same.
func (t *collectorTuner) adjust(live uint64) {
	percent := percentFor(live, t.most)
	if diff := percent - t.percent; max(diff, -diff) >= int(smallestChangeOfPercent) ||
		(diff != 0 && (percent == minGCPercent || percent == t.most)) {
		t.percent = percent
		t.set(percent)
	}
}

// percentFor is the percentage that gives gcHeadroom above so many live bytes, but at most most.
func percentFor(live uint64, most int) int {
	return int(min(max(100*gcHeadroom/max(1, live), minGCPercent), uint64(most)))
}

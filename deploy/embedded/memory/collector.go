package memory

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

// Collector is what the garbage collector is set up by.
type Collector struct {
	// GOGC and GOMEMLIMIT are what the environment of the process says (see the documentation of Go).
	// Each decides if it says anything.
	GOGC, GOMEMLIMIT string
	// Limit is how many bytes the process may use; see MemoryLimit.
	Limit int64
	// CoreOnly says that none of the servers is a data node.
	CoreOnly bool
	// Cache, MemTable and LogMemTable are the sizes in bytes that the server was given; 0: by the
	// limit.
	Cache, MemTable, LogMemTable int64
}

// needs is what the limit is divided for.
func (c *Collector) needs() Needs {
	return Needs{Node: !c.CoreOnly, Core: true, Cache: c.Cache, MemTable: c.MemTable,
		LogMemTable: c.LogMemTable}
}

// TuneCollector sets the garbage collector up for a process that does little else than run servers.
// Call it once.
//
// The collector works the more the nearer the process comes to the limit, and takes no more than
// half of the processor time for that: it cannot make room for what is in use.
func TuneCollector(c Collector) {
	if c.GOMEMLIMIT == "" {
		debug.SetMemoryLimit(ofGo(c.Limit, c.needs(), TablesOutsideGo))
	}
	if c.GOGC != "" {
		return
	}
	most := maxGCPercent
	if c.CoreOnly {
		most = maxCoreGCPercent
	}
	t := &collectorTuner{percent: most, most: most,
		set: func(percent int) { debug.SetGCPercent(percent) }}
	debug.SetGCPercent(t.percent)
	t.watch()
}

// ofGo is how much of a limit is memory that Go's collector knows of. outside says that block
// caches and memtables are not.
func ofGo(limit int64, n Needs, outside bool) int64 {
	if !outside {
		return limit
	}
	sizes, err := Divide(limit, n)
	if err != nil {
		return limit // StartServer refuses it
	}
	return limit - sizes.Tables()
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

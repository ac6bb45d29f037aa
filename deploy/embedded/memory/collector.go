package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A server's heap has its block cache and memtables, some hundred MiB that hardly change, and the
// garbage of requests, which is small and short-lived. By default Go lets garbage grow to the size
// of the live memory. That is too little for a server with empty caches, which would collect all
// the time, and too much for a server with full caches. So the garbage may take gcHeadroom,
// whatever the live memory is, as far as the percentage stays within its limits.
const (
	gcHeadroom                 = 384 << 20
	minGCPercent, maxGCPercent = 50, 400
	// maxCoreGCPercent is the highest percentage in a process whose servers are only members of the
	// core, and so have no data in their caches.
	maxCoreGCPercent             = 200
	liveHeap                     = "/gc/heap/live:bytes"
	smallestChangeOfPercent uint = 10
)

// Collector configures the garbage collector.
type Collector struct {
	// GOGC and GOMEMLIMIT are the environment variables of the process (see the documentation of
	// Go). Each takes precedence if it is set.
	GOGC, GOMEMLIMIT string
	// Limit is the number of bytes that the process may use; see MemoryLimit.
	Limit int64
	// CoreOnly is set if none of the servers is a data node.
	CoreOnly bool
	// Cache, MemTable and LogMemTable are the configured sizes in bytes. 0 means that the size is
	// derived from the limit.
	Cache, MemTable, LogMemTable int64
}

// needs returns the needs for dividing the limit.
func (c *Collector) needs() Needs {
	return Needs{Node: !c.CoreOnly, Core: true, Cache: c.Cache, MemTable: c.MemTable,
		LogMemTable: c.LogMemTable}
}

// TuneCollector configures the garbage collector for a process that does little else than run
// servers. Call it once.
//
// The collector works more the nearer the process comes to the limit. It takes at most half of the
// processor time for that, because it cannot free memory that is in use.
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

// ofGo returns the part of a limit that Go's collector manages. outside is set if block caches and
// memtables are not managed by it.
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

// collectorTuner sets the percentage after each collection.
type collectorTuner struct {
	// percent is the present percentage. most is the highest allowed percentage.
	percent, most int
	set           func(percent int)
}

// watch makes the runtime call adjust after the next collection, by a finalizer, on the runtime's
// own goroutine.
func (t *collectorTuner) watch() {
	// The object must not be tiny: tiny objects share their finalizer with neighbours.
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

// adjust sets the percentage for a number of live bytes, unless the change would be small.
func (t *collectorTuner) adjust(live uint64) {
	percent := percentFor(live, t.most)
	if diff := percent - t.percent; max(diff, -diff) >= int(smallestChangeOfPercent) ||
		(diff != 0 && (percent == minGCPercent || percent == t.most)) {
		t.percent = percent
		t.set(percent)
	}
}

// percentFor returns the percentage that gives gcHeadroom above a number of live bytes. The result
// is at most most.
func percentFor(live uint64, most int) int {
	return int(min(max(100*gcHeadroom/max(1, live), minGCPercent), uint64(most)))
}

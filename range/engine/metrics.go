package engine

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// collector reads the engine's metrics when they are asked for, which costs nothing in between.
type collector struct {
	s          *store
	registerer prometheus.Registerer

	mu struct {
		sync.Mutex
		closed bool
	}

	descs []metricDesc
}

type metricDesc struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(sample) float64
}

// sample is the data of one collection.
type sample struct {
	*pebble.Metrics
	s *store
}

func newCollector(s *store, r prometheus.Registerer) *collector {
	c := &collector{s: s, registerer: r}
	labels := prometheus.Labels{"engine": string(s.kind)}
	add := func(kind prometheus.ValueType, name, help string, value func(sample) float64) {
		c.descs = append(c.descs, metricDesc{
			desc:  prometheus.NewDesc("tidemark_engine_"+name, help, nil, labels),
			kind:  kind,
			value: value,
		})
	}
	gauge := func(name, help string,
		value func(sample) float64) {
		add(prometheus.GaugeValue, name, help, value)
	}
	counter := func(name, help string,
		value func(sample) float64) {
		add(prometheus.CounterValue, name, help, value)
	}

	gauge("failed", "1 if the disk has failed.",
		func(m sample) float64 { return boolean(m.s.g.err() != nil) })
	gauge("full", "1 while the disk is full, or nearly so, and writes are refused.",
		func(m sample) float64 { return boolean(m.s.g.full()) })
	gauge("free_bytes", "Free space of the disk; 0 if unknown.",
		func(m sample) float64 { return float64(m.s.g.free.Load()) })
	gauge("disk_bytes", "Space that the engine's files take.",
		func(m sample) float64 { return float64(m.DiskSpaceUsage()) })
	gauge("live_table_bytes", "Size of the tables that hold current data.",
		func(m sample) float64 { t := m.Total(); return float64(t.TablesSize) })
	gauge("read_amplification", "How many sublevels a read may have to look into.",
		func(m sample) float64 { return float64(m.ReadAmp()) })
	gauge("l0_files", "Tables in level 0.",
		func(m sample) float64 { return float64(m.Levels[0].TablesCount) })
	gauge("compaction_debt_bytes", "Estimate of what has to be compacted.",
		func(m sample) float64 { return float64(m.Compact.EstimatedDebt) })
	gauge("memtable_bytes", "Memory of the memtables.",
		func(m sample) float64 { return float64(m.MemTable.Size) })
	gauge("memtables", "Number of memtables.",
		func(m sample) float64 { return float64(m.MemTable.Count) })
	gauge("cache_bytes", "Memory of the block cache.",
		func(m sample) float64 { return float64(m.BlockCache.Size) })
	gauge("wal_bytes", "Size of the write-ahead log on disk.",
		func(m sample) float64 { return float64(m.WAL.PhysicalSize) })
	gauge("wal_files", "Write-ahead log files in use.",
		func(m sample) float64 { return float64(m.WAL.Files) })
	counter("cache_hits_total", "Block cache hits.",
		func(m sample) float64 { return float64(m.BlockCache.Hits) })
	counter("cache_misses_total", "Block cache misses.",
		func(m sample) float64 { return float64(m.BlockCache.Misses) })
	counter("filter_hits_total", "Tables that a bloom filter saved from being read.",
		func(m sample) float64 { return float64(m.Filter.Hits) })
	counter("filter_misses_total", "Tables that a bloom filter did not save from being read.",
		func(m sample) float64 { return float64(m.Filter.Misses) })
	counter("flushes_total", "Memtable flushes.",
		func(m sample) float64 { return float64(m.Flush.Count) })
	counter("flushed_bytes_total", "Bytes of flushed memtables.",
		func(m sample) float64 { return float64(m.Flush.WriteThroughput.Bytes) })
	counter("compactions_total", "Compactions.",
		func(m sample) float64 { return float64(m.Compact.Count) })
	counter("compactions_failed_total", "Compactions that failed.",
		func(m sample) float64 { return float64(m.Compact.FailedCount) })
	counter("compacted_bytes_total", "Bytes written by compactions.",
		func(m sample) float64 { t := m.Total(); return float64(t.TableBytesCompacted) })
	counter("ingests_total", "Ingestions of tables.",
		func(m sample) float64 { return float64(m.Ingest.Count) })
	counter("wal_input_bytes_total", "Bytes that were given to the write-ahead log.",
		func(m sample) float64 { return float64(m.WAL.BytesIn) })
	counter("wal_written_bytes_total", "Bytes that the write-ahead log wrote.",
		func(m sample) float64 { return float64(m.WAL.BytesWritten) })
	counter("write_stalls_total", "How often writes had to wait for flushes or compactions.",
		func(m sample) float64 { return float64(m.s.stalls.Load()) })
	counter("corruptions_total", "Damaged files that reads met.",
		func(m sample) float64 { return float64(m.s.corruptions.Load()) })
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d.desc
	}
	c.s.g.walSyncSeconds.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return
	}
	m := sample{Metrics: c.s.db.Metrics(), s: c.s}
	for _, d := range c.descs {
		ch <- prometheus.MustNewConstMetric(d.desc, d.kind, d.value(m))
	}
	c.s.g.walSyncSeconds.Collect(ch)
}

// close unregisters the metrics, after a collection under way has ended.
func (c *collector) close() {
	c.registerer.Unregister(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

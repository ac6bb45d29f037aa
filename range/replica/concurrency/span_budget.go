package concurrency

import "sync/atomic"

// spanBudget bounds the span locks of all partitions that a node leads. Their memory is that of
// their bounds, and a record of some 300 bytes each.
type spanBudget struct {
	count, bytes atomic.Int64
	most         int64
}

// maxSpanLockBytes is how many bytes the bounds of all span locks of a node have together.
const maxSpanLockBytes = 16 << 20

// fits says whether so many more may be held. Partitions that ask at one moment may go beyond the
// bound together, by what one request holds each.
func (b *spanBudget) fits(count, bytes int) bool {
	return b.count.Load()+int64(count) <= b.most && b.bytes.Load()+int64(bytes) <= maxSpanLockBytes
}

// counted is what the node's gauges and bounds know of a partition's lock table.
type counted struct{ keys, spans, spanBytes int }

// count brings them up to date. It follows every change of the table.
func (m *Manager) count() {
	before := m.counted
	now := counted{keys: m.table.Len(), spans: m.table.Spans(), spanBytes: m.table.SpanBytes()}
	if now == before {
		return
	}
	m.counted = now
	m.held.Store(int64(now.keys + now.spans))
	m.config.Metrics.locks.Add(float64(now.keys - before.keys))
	if now.spans != before.spans {
		m.config.Metrics.spanLocks.Add(float64(now.spans - before.spans))
		m.config.spans.count.Add(int64(now.spans - before.spans))
		m.config.spans.bytes.Add(int64(now.spanBytes - before.spanBytes))
	}
}

// uncount takes them out of what is counted.
func (m *Manager) uncount() {
	m.config.Metrics.locks.Sub(float64(m.counted.keys))
	m.config.Metrics.spanLocks.Sub(float64(m.counted.spans))
	m.config.spans.count.Add(-int64(m.counted.spans))
	m.config.spans.bytes.Add(-int64(m.counted.spanBytes))
	m.counted = counted{}
	m.held.Store(0)
}

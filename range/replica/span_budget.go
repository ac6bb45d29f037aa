package replica

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

// countLocksLocked brings them up to date.
func (r *Replica) countLocksLocked() {
	t, before := &r.mu.locks, r.mu.counted
	now := counted{keys: t.Len(), spans: t.Spans(), spanBytes: t.SpanBytes()}
	if now == before {
		return
	}
	r.mu.counted = now
	r.locked.Store(int64(now.keys + now.spans))
	r.node.Metrics.locks.Add(float64(now.keys - before.keys))
	if now.spans != before.spans {
		r.node.Metrics.spanLocks.Add(float64(now.spans - before.spans))
		r.node.spans.count.Add(int64(now.spans - before.spans))
		r.node.spans.bytes.Add(int64(now.spanBytes - before.spanBytes))
	}
}

// uncountLocksLocked takes them out of what is counted: the replica ends.
func (r *Replica) uncountLocksLocked() {
	r.node.Metrics.locks.Sub(float64(r.mu.counted.keys))
	r.node.Metrics.spanLocks.Sub(float64(r.mu.counted.spans))
	r.node.spans.count.Add(-int64(r.mu.counted.spans))
	r.node.spans.bytes.Add(-int64(r.mu.counted.spanBytes))
	r.mu.counted = counted{}
	r.locked.Store(0)
}

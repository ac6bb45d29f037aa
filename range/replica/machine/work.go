package machine

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Work counts what a replica has done for requests since it was opened, as far as its callers
// cannot count it themselves.
type Work struct {
	// Reads and Writes count accepted requests; ReadBytes counts the bytes that reads returned.
	Reads, Writes, ReadBytes uint64
	// Pooled is the time that goroutines of the pools have spent for the replica, including its
	// part of reads of several partitions.
	Pooled time.Duration
	// Spans counts the reads that took longer than the goroutine that delivers requests may be
	// held; SpanTime is their part of Pooled.
	Spans    uint64
	SpanTime time.Duration
}

// work holds the counters behind Work.
type work struct {
	reads, writes, readBytes, spans atomic.Uint64
	pooled, spanTime                atomic.Int64
}

// Took counts accepted requests.
func (w *work) Took(requests, writes int) {
	if writes > 0 {
		w.writes.Add(uint64(writes))
	}
	if reads := requests - writes; reads > 0 {
		w.reads.Add(uint64(reads))
	}
}

// Read counts what a read has returned.
func (w *work) Read(response *kvpb.Response) {
	n := 0
	switch c := response.Result.(type) {
	case *kvpb.Response_Get:
		n = len(c.Get.GetValue())
	case *kvpb.Response_Scan:
		n = len(c.Scan.GetRows())
	case *kvpb.Response_Changes:
		for _, change := range c.Changes.GetChanges() {
			n += len(change.GetKey()) + len(change.GetValue())
		}
	case *kvpb.Response_BatchGet:
		for _, got := range c.BatchGet.GetValues() {
			n += len(got.GetValue())
		}
	}
	if n > 0 {
		w.readBytes.Add(uint64(n))
	}
}

// Span counts a long read that began at a time.
func (w *work) Span(began time.Time) {
	w.spans.Add(1)
	w.spanTime.Add(int64(time.Since(began)))
}

// Shared counts a part of a read of several partitions.
func (w *work) Shared(took time.Duration, bytes int) {
	w.reads.Add(1)
	w.pooled.Add(int64(took))
	w.readBytes.Add(uint64(bytes))
}

// SharedSpan is Shared for a read of spans.
func (w *work) SharedSpan(took time.Duration, bytes int) {
	w.Shared(took, bytes)
	w.spans.Add(1)
	w.spanTime.Add(int64(took))
}

// Sum returns the counts.
func (w *work) Sum() Work {
	return Work{Reads: w.reads.Load(), Writes: w.writes.Load(), ReadBytes: w.readBytes.Load(),
		Pooled: time.Duration(w.pooled.Load()), Spans: w.spans.Load(),
		SpanTime: time.Duration(w.spanTime.Load())}
}

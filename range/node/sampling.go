package node

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// samplesPerSecond is about how many requests of a partition are sampled for each second, and
	// mostGap how many one stands for at most.
	samplesPerSecond = 100
	mostGap          = 1 << 16
	// mostWeight bounds what a read of a span counts for, in points.
	mostWeight = 1000
)

// sampling samples the requests of one partition, so that a key is found at which its load can be
// divided.
type sampling struct {
	keys load.Keys
	// asked counts requests; one of gap is sampled. spanWeight is what a read of a span counts as.
	asked           atomic.Uint64
	gap, spanWeight atomic.Uint64

	// What follows belongs to the splitter's goroutine: when the window began and what was counted
	// then, and what the last one has shown.
	of      sampledAs
	turned  time.Time
	before  load.Totals
	work    replica.Work
	verdict load.Verdict
}

// note samples some of the requests that a replica is to take in. For one that is not sampled it
// costs two atomic reads and an addition for all of them.
func (s *sampling) note(requests []replica.Pending) {
	n, gap := uint64(len(requests)), s.gap.Load()
	at := s.asked.Add(n)
	// Not every gap-th one, which might always be of the same kind. The requests of one message are
	// as good as any.
	drawn := at * 0x9e3779b97f4a7c15 >> 20 % gap
	if drawn >= n {
		return
	}
	s.noteOne(requests[drawn].Request, gap, requests[drawn].Arrived)
}

// noteOne samples a request that stands for so many.
func (s *sampling) noteOne(q *kvpb.Request, stands uint64, now time.Time) {
	c := command.Of(q)
	if c.Footprint == nil {
		return
	}
	f := c.Footprint(q)
	sample := load.Sample{Weight: stands, Write: c.Way == command.InQueue, At: now}
	count, some := uint64(0), false
	for key := range f.Keys {
		sample.Cover(key, some)
		count, some = count+1, true
	}
	for start, end := range f.EachSpan {
		sample.CoverSpan(start, end, some)
		some = true
	}
	if len(f.Spans) > 0 || f.Span {
		count += s.spanWeight.Load()
	}
	if some {
		sample.Weight *= max(count, 1)
		s.keys.Note(sample)
	}
}

// bundleGap is how many reads of several partitions one that is sampled stands for.
const bundleGap = 16

// sampledBundle says whether the next read of several partitions is sampled.
func (n *Node) sampledBundle() bool {
	return n.bundles.Add(1)*0x9e3779b97f4a7c15>>20%bundleGap == 0
}

// sampleOf samples what a read of several partitions has for one of them.
func (n *Node) sampleOf(partition uint64, q *kvpb.Request, now time.Time) {
	if h := n.replicas.get(keys.PartitionID(partition)); h != nil {
		if s := h.load.sampling.Load(); s != nil {
			s.noteOne(q, bundleGap, now)
		}
	}
}

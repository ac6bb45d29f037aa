package loadmeter

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// samplesPerSecond is about how many requests of a partition are sampled each second; mostGap
	// bounds the requests for which one sample stands.
	samplesPerSecond = 100
	mostGap          = 1 << 16
	// mostWeight bounds the weight of a read of a span, in points.
	mostWeight = 1000
)

// Sampling samples the requests of one partition, to find a key that divides its load.
type Sampling struct {
	keys load.Keys
	// asked counts requests; one of gap is sampled. spanWeight is the weight of a read of a span.
	asked           atomic.Uint64
	Gap, spanWeight atomic.Uint64

	// The following fields belong to the splitter's goroutine: when the window began and the counts
	// at that time, and the result of the last window.
	Of      Epoch
	Turned  time.Time
	before  load.Totals
	work    machine.Work
	Verdict load.Verdict
}

// Note samples some of the requests that a replica is about to take. If none is sampled, the cost
// is two atomic reads and an addition for all of them.
func (s *Sampling) Note(requests []config.Pending) {
	n, gap := uint64(len(requests)), s.Gap.Load()
	at := s.asked.Add(n)
	// Not every gap-th request, which might always be of the same kind. Which request of a message
	// is taken does not matter.
	drawn := at * 0x9e3779b97f4a7c15 >> 20 % gap
	if drawn >= n {
		return
	}
	s.NoteOne(requests[drawn].Request, gap, requests[drawn].Arrived)
}

// NoteOne samples a request that stands for a number of requests.
func (s *Sampling) NoteOne(q *kvpb.Request, stands uint64, now time.Time) {
	c := command.Of(q)
	if c.Footprint == nil {
		return
	}
	f := c.Footprint(q)
	sample := load.Sample{Weight: stands, Write: c.Dispatch == command.InQueue, At: now}
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

// Begin begins a window. The counts of the last window decide which requests are sampled, and the
// weight of a span.
func (s *Sampling) Begin(m *Meter, w machine.Work) {
	s.Gap.Store(min(max(m.requests.Load()/samplesPerSecond, 1), mostGap))
	t := m.totals(w)
	spans := w.Spans - s.work.Spans
	points := t.Reads - s.before.Reads + t.Writes - s.before.Writes - spans
	weight := uint64(1)
	spanTime := w.SpanTime - s.work.SpanTime
	if began := s.before != (load.Totals{}); began && spans > 0 && points > 0 {
		if rest := t.Led - s.before.Led - spanTime; rest > 0 {
			each := float64(spanTime) / float64(spans)
			weight = uint64(min(max(each*float64(points)/float64(rest), 1), mostWeight))
		}
	}
	s.spanWeight.Store(weight)
	s.before, s.work = t, w
}

// Turn ends a window. span is the partition's, and last the last key in it.
func (s *Sampling) Turn(span keys.Span, last []byte) { s.Verdict = s.keys.Turn(span, last) }

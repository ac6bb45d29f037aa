package loadmeter

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The bounds of a History: an hour of points of the node, and an hour of slots by partition. A
// partition of a slot takes 32 bytes, so a node that leads maxOfSlot busy partitions all the time
// has 16 MiB of history, and a node with 100 busy partitions 400 KiB.
const (
	pointLength  = 10 * time.Second
	slotLength   = 30 * time.Second
	historyPast  = time.Hour
	maxPoints    = int(historyPast/pointLength) + 1
	maxSlots     = int(historyPast/slotLength) + 1
	maxOfSlot    = 4096
	maxAnswered  = 1 << 15 // partitions of all slots in one answer
	longestGap   = time.Minute
	latencyKinds = 3
)

// Latencies are the times of requests: how many have been measured so far, for each kind (read,
// write, step of a transaction) and by how long they took.
type Latencies [latencyKinds][]uint64

// History is what a data node has done in the last hour: as a whole, and for each partition that it
// led. It is filled by the goroutine that samples meters, and read by any. It is in memory only.
type History struct {
	mu sync.Mutex
	// points and slots are in the order in which they began; the last of each is still open.
	points []*clusterpb.LoadPoint
	slots  []*slot
	// sampled is when the last samples were taken; zero: never.
	sampled time.Time
	// latencies reads the times of requests; nil: they are not measured. measured is what it has
	// returned at the beginning of the open point.
	latencies func() Latencies
	measured  Latencies
}

// slot is what partitions have done in a span of time.
type slot struct {
	unixMillis uint64
	millis     uint32
	// of has the partitions that have done anything; nil when the slot is over.
	of map[keys.PartitionID]load.Totals
	// over is the slot as it is answered, once nothing is added; it never changes.
	over *clusterpb.LoadSlot
}

// Measure sets the function that reads the times of requests. It is set before the first sample.
func (h *History) Measure(latencies func() Latencies) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latencies = latencies
}

// Begin begins a round of samples. What the samples add is what was done since the last round.
func (h *History) Begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := now.Sub(h.sampled)
	first := h.sampled.IsZero()
	h.sampled = now
	unix := uint64(now.UnixMilli())
	if at := begin(unix, pointLength); len(h.points) == 0 || last(h.points).UnixMs != at {
		h.points = shifted(h.points, maxPoints)
		h.points = append(h.points, &clusterpb.LoadPoint{UnixMs: at})
		if h.latencies != nil {
			h.measured = h.latencies()
		}
	}
	if at := begin(unix, slotLength); len(h.slots) == 0 || last(h.slots).unixMillis != at {
		if len(h.slots) > 0 {
			last(h.slots).end()
		}
		h.slots = shifted(h.slots, maxSlots)
		h.slots = append(h.slots, &slot{unixMillis: at, of: map[keys.PartitionID]load.Totals{}})
	}
	if first || since < 0 || since > longestGap {
		return // nothing is known of the time before
	}
	last(h.points).Millis += uint32(since.Milliseconds())
	last(h.slots).millis += uint32(since.Milliseconds())
}

// Add adds what a partition has done since the last round. Begin comes before it.
func (h *History) Add(id keys.PartitionID, done load.Totals) {
	if done.Reads|done.Writes|done.ReadBytes|done.WrittenBytes == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := last(h.points)
	p.Reads += done.Reads
	p.Writes += done.Writes
	p.ReadBytes += done.ReadBytes
	p.WrittenBytes += done.WrittenBytes
	s := last(h.slots)
	sum := s.of[id]
	sum.Reads += done.Reads
	sum.Writes += done.Writes
	sum.ReadBytes += done.ReadBytes
	sum.WrittenBytes += done.WrittenBytes
	s.of[id] = sum
}

// End ends a round of samples.
func (h *History) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latencies == nil {
		return
	}
	now, p := h.latencies(), last(h.points)
	p.Took = nil
	for kind, counts := range now {
		times := &clusterpb.RequestTimes{Kind: uint32(kind)}
		some := false
		for i, n := range counts {
			if i < len(h.measured[kind]) {
				n -= min(n, h.measured[kind][i])
			}
			some = some || n > 0
			times.Counts = append(times.Counts, uint32(n))
		}
		if some {
			p.Took = append(p.Took, times)
		}
	}
}

// Since answers with the points and, if asked for, the slots that begin at a time or later, as many
// as an answer may have.
func (h *History) Since(q *clusterpb.LoadHistoryRequest) *clusterpb.LoadHistoryResponse {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &clusterpb.LoadHistoryResponse{}
	for _, p := range h.points {
		if p.UnixMs >= q.SinceUnixMs {
			// A copy: the open point goes on, and its list of times is replaced, not changed.
			r.Points = append(r.Points, &clusterpb.LoadPoint{UnixMs: p.UnixMs, Millis: p.Millis,
				Reads: p.Reads, Writes: p.Writes, ReadBytes: p.ReadBytes, WrittenBytes: p.WrittenBytes,
				Took: p.Took})
		}
	}
	answered := 0
	for _, s := range h.slots {
		if !q.Partitions || s.unixMillis < q.SlotsSinceUnixMs {
			continue
		}
		m := s.message()
		if answered > 0 && answered+len(m.Partitions) > maxAnswered {
			r.More = true
			return r
		}
		answered += len(m.Partitions)
		r.Slots = append(r.Slots, m)
	}
	return r
}

// end is called when nothing is added any more.
func (s *slot) end() { s.over, s.of = s.message(), nil }

// message is the slot as it is answered: with at most maxOfSlot partitions. Those that have done the
// least are left out.
func (s *slot) message() *clusterpb.LoadSlot {
	if s.over != nil {
		return s.over
	}
	m := &clusterpb.LoadSlot{UnixMs: s.unixMillis, Millis: s.millis}
	ids := slices.Collect(maps.Keys(s.of))
	if len(ids) > maxOfSlot {
		slices.SortFunc(ids, func(a, b keys.PartitionID) int {
			x, y := s.of[a], s.of[b]
			return cmp.Or(cmp.Compare(y.Reads+y.Writes, x.Reads+x.Writes), cmp.Compare(a, b))
		})
		m.LeftOut = uint32(len(ids) - maxOfSlot)
		ids = ids[:maxOfSlot]
	}
	for _, id := range ids {
		t := s.of[id]
		m.Partitions = append(m.Partitions, uint64(id))
		m.Reads = append(m.Reads, t.Reads)
		m.Writes = append(m.Writes, t.Writes)
		m.Bytes = append(m.Bytes, t.ReadBytes+t.WrittenBytes)
	}
	return m
}

// begin is when the span of a time begins, in Unix milliseconds.
func begin(unixMillis uint64, length time.Duration) uint64 {
	return unixMillis - unixMillis%uint64(length.Milliseconds())
}

func last[T any](list []T) T { return list[len(list)-1] }

// shifted makes room for one more element, of at most most.
func shifted[T any](list []T, most int) []T {
	if len(list) < most {
		return list
	}
	return slices.Delete(list, 0, len(list)-most+1)
}

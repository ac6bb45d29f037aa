package loadmeter

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Samples of two hours give a history of the last hour, whose sums are those of the samples.
func TestHistoryIsAnHour(t *testing.T) {
	var h History
	now := time.UnixMilli(1_700_000_000_000)
	counted := Latencies{}
	h.Measure(func() Latencies {
		return Latencies{slices.Clone(counted[0]), slices.Clone(counted[1]), slices.Clone(counted[2])}
	})
	counted[0] = []uint64{0, 0, 0}
	for range 2 * 60 * 20 { // a sample every 3 s
		now = now.Add(3 * time.Second)
		h.Begin(now)
		h.Add(7, load.Totals{Reads: 30, Writes: 3, ReadBytes: 300, WrittenBytes: 60})
		h.Add(8, load.Totals{})
		counted[0][1]++
		h.End()
	}
	r := h.Since(&clusterpb.LoadHistoryRequest{Partitions: true})
	if len(r.Points) > maxPoints || len(r.Points) < maxPoints-1 || len(r.Slots) > maxSlots ||
		len(r.Slots) < maxSlots-1 || r.More {
		t.Fatalf("%d points and %d slots, more %v", len(r.Points), len(r.Slots), r.More)
	}
	for i, p := range r.Points[1 : len(r.Points)-1] {
		if rate := float64(p.Reads) / float64(p.Millis) * 1000; rate < 9.9 || rate > 10.1 {
			t.Fatalf("point %d: %d reads in %d ms", i, p.Reads, p.Millis)
		}
		if len(p.Took) != 1 || p.Took[0].Kind != 0 || p.Took[0].Counts[1] < 2 {
			t.Fatalf("point %d: times %v", i, p.Took)
		}
	}
	for i, s := range r.Slots[1 : len(r.Slots)-1] {
		if !slices.Equal(s.Partitions, []uint64{7}) || s.Millis != 30_000 || s.Reads[0] != 300 ||
			s.Writes[0] != 30 || s.Bytes[0] != 3600 {
			t.Fatalf("slot %d is %v", i, s)
		}
	}
	newest := r.Points[len(r.Points)-1].UnixMs
	if r := h.Since(&clusterpb.LoadHistoryRequest{SinceUnixMs: newest}); len(r.Points) != 1 ||
		len(r.Slots) != 0 {
		t.Errorf("since the newest there are %d points and %d slots", len(r.Points), len(r.Slots))
	}
}

// What is kept, and what is answered, is bounded however many partitions are busy; the busiest are
// kept. An answer that is not all leads to the next.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	now := time.UnixMilli(1_700_000_000_000)
	for range 12 { // slots
		h.Begin(now)
		for id := range keys.PartitionID(maxOfSlot + 100) {
			h.Add(id+1, load.Totals{Reads: uint64(id + 1)})
		}
		h.End()
		now = now.Add(slotLength)
	}
	q := &clusterpb.LoadHistoryRequest{Partitions: true}
	var slots []*clusterpb.LoadSlot
	for {
		r := h.Since(q)
		answered := 0
		for _, s := range r.Slots {
			answered += len(s.Partitions)
		}
		if answered > maxAnswered {
			t.Fatalf("an answer has %d partitions", answered)
		}
		slots = append(slots, r.Slots...)
		if !r.More {
			break
		}
		q.SlotsSinceUnixMs = r.Slots[len(r.Slots)-1].UnixMs + 1
	}
	if len(slots) != 12 {
		t.Fatalf("%d slots, want 12", len(slots))
	}
	for _, s := range slots {
		if len(s.Partitions) != maxOfSlot || s.LeftOut != 100 || slices.Min(s.Reads) != 101 {
			t.Fatalf("a slot has %d partitions, the least busy one with %d reads, and leaves %d out",
				len(s.Partitions), slices.Min(s.Reads), s.LeftOut)
		}
	}
}

// What was done before a leadership, or while nobody sampled, belongs to no span.
func TestHistoryWithGaps(t *testing.T) {
	var m Meter
	work := func(n uint64) machine.Work { return machine.Work{Reads: n} }
	for i, step := range []struct {
		leading bool
		reads   uint64
		want    uint64
	}{{true, 100, 0}, {true, 130, 30}, {false, 150, 0}, {true, 170, 0}, {true, 171, 1}} {
		if done := m.Done(step.leading, work(step.reads)); done.Reads != step.want {
			t.Errorf("step %d: %d reads, want %d", i, done.Reads, step.want)
		}
	}
	var h History
	now := time.UnixMilli(1_700_000_000_000)
	h.Begin(now)
	h.End()
	now = now.Add(10 * time.Minute)
	h.Begin(now)
	h.End()
	for _, p := range h.Since(&clusterpb.LoadHistoryRequest{}).Points {
		if p.Millis != 0 {
			t.Errorf("a point after a gap was measured for %d ms", p.Millis)
		}
	}
	h.Begin(now.Add(-time.Hour)) // the clock was put back
	h.Add(1, load.Totals{Reads: 1})
	h.End()
}

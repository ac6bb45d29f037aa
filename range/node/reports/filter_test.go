package reports

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func TestNewsworthy(t *testing.T) {
	base := &clusterpb.PartitionReport{Partition: 1, Term: 5, Generation: 2, Membership: 3,
		LiveKeys: 10_000, SizeBytes: 10 << 20, WaitsFor: "a learner", LeaderLoadMicro: 500_000,
		FollowerLoadMicro: 100_000, MeasuredSeconds: 20, Described: &clusterpb.Partition{Id: 1}}
	for _, c := range []struct {
		what   string
		change func(r *clusterpb.PartitionReport)
		want   bool
	}{
		{"nothing", func(*clusterpb.PartitionReport) {}, false},
		{"term", func(r *clusterpb.PartitionReport) { r.Term++ }, true},
		{"generation", func(r *clusterpb.PartitionReport) { r.Generation++ }, true},
		{"membership", func(r *clusterpb.PartitionReport) { r.Membership++ }, true},
		{"settled", func(r *clusterpb.PartitionReport) { r.Described = nil }, true},
		{"lost", func(r *clusterpb.PartitionReport) { r.Lost = true }, true},
		{"order", func(r *clusterpb.PartitionReport) { r.WaitsFor = "its clock" }, true},
		{"less than a tenth more", func(r *clusterpb.PartitionReport) {
			r.SizeBytes, r.LiveKeys = 11<<20-1<<16, 10_999
		}, false},
		{"more than a tenth more", func(r *clusterpb.PartitionReport) {
			r.SizeBytes = 11<<20 + 1
		}, true},
		{"more than a tenth less", func(r *clusterpb.PartitionReport) {
			r.SizeBytes = 9<<20 - 1
		}, true},
		{"keys", func(r *clusterpb.PartitionReport) { r.LiveKeys = 11_001 }, true},
		{"fewer keys", func(r *clusterpb.PartitionReport) { r.LiveKeys = 0 }, true},
		{"load", func(r *clusterpb.PartitionReport) { r.LeaderLoadMicro = 551_000 }, true},
		{"a little load", func(r *clusterpb.PartitionReport) { r.LeaderLoadMicro = 545_000 }, false},
		{"no load", func(r *clusterpb.PartitionReport) { r.LeaderLoadMicro = 0 }, true},
		{"load of followers", func(r *clusterpb.PartitionReport) {
			r.FollowerLoadMicro = 120_000
		}, true},
		{"not yet measured", func(r *clusterpb.PartitionReport) { r.MeasuredSeconds = 59 }, false},
		{"measured", func(r *clusterpb.PartitionReport) { r.MeasuredSeconds = 60 }, true},
	} {
		r := proto.Clone(base).(*clusterpb.PartitionReport)
		c.change(r)
		if got := newsworthy(base, r); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
	if !newsworthy(nil, base) {
		t.Error("the first report is no news")
	}
	small := &clusterpb.PartitionReport{SizeBytes: 100, LiveKeys: 1}
	if newsworthy(small, &clusterpb.PartitionReport{SizeBytes: 5000, LiveKeys: 50}) {
		t.Error("a few kilobytes are news at once")
	}
	if !newsworthy(small, &clusterpb.PartitionReport{SizeBytes: 70_000, LiveKeys: 50}) {
		t.Error("much for a small partition is no news")
	}
}

func TestTakeBusiest(t *testing.T) {
	var all []weak
	for i := range uint64(100) {
		all = append(all, weak{report: &clusterpb.PartitionReport{Partition: i,
			LeaderLoadMicro: i * 37 % 100}})
	}
	taken, rest := takeBusiest(all, 10)
	if len(taken) != 10 || len(rest) != 90 {
		t.Fatalf("%d, %d", len(taken), len(rest))
	}
	for _, w := range taken {
		if w.report.LeaderLoadMicro < 90 {
			t.Errorf("load %d is among the greatest", w.report.LeaderLoadMicro)
		}
	}
	if taken, rest := takeBusiest(all[:5], 10); len(taken) != 5 || len(rest) != 0 {
		t.Errorf("%d, %d", len(taken), len(rest))
	}
	if taken, rest := takeBusiest(all, 0); len(taken) != 0 || len(rest) != 100 {
		t.Errorf("%d, %d", len(taken), len(rest))
	}
}

// reporting is a report of a partition without a replica behind it.
type reporting struct {
	figures map[*hosted.Replica]*clusterpb.PartitionReport
	sent    map[keys.PartitionID]uint64
}

func (s *reporting) of(h *hosted.Replica, _ bool) *clusterpb.PartitionReport {
	return proto.Clone(s.figures[h]).(*clusterpb.PartitionReport)
}

// beat makes the heartbeats of one beat.
func (s *reporting) beat(t *testing.T, r *Reports, heard bool) (n int) {
	t.Helper()
	for {
		b := r.takeBy(s.of)
		if len(b.reports) > MaxReports || len(b.hosted) != len(b.reports) {
			t.Fatalf("%d reports, %d partitions", len(b.reports), len(b.hosted))
		}
		n += len(b.reports)
		if heard {
			for _, report := range b.reports {
				s.sent[keys.PartitionID(report.Partition)] = report.SizeBytes
			}
		}
		r.done(b, heard)
		if !b.more || !heard {
			return n
		}
	}
}

// TestReportsConverge: under load that changes little, a beat reports little; when the load is
// over, each partition is reported once more, and then none.
func TestReportsConverge(t *testing.T) {
	const all = 5000
	r := New(&hosted.Node{Metrics: hosted.NewMetrics(nil)}, nil, nil, 1, 1)
	s := &reporting{figures: map[*hosted.Replica]*clusterpb.PartitionReport{},
		sent: map[keys.PartitionID]uint64{}}
	for i := range all {
		h := &hosted.Replica{ID: keys.PartitionID(i + 1)}
		s.figures[h] = &clusterpb.PartitionReport{Partition: uint64(h.ID), Term: 1,
			SizeBytes: 100 << 20}
		r.Changed(h)
	}
	write := func() {
		for h, f := range s.figures {
			f.SizeBytes += 1000
			r.Changed(h)
		}
	}
	if n := s.beat(t, r, false); n != MaxReports {
		t.Errorf("%d reports in the first heartbeat", n)
	}
	if n := s.beat(t, r, true); n != all {
		t.Errorf("%d reports at first", n)
	}
	for i := range 20 {
		write()
		if n := s.beat(t, r, i != 7); n > busiest {
			t.Fatalf("beat %d: %d reports of partitions that have hardly changed", i, n)
		}
	}
	// One grows by much.
	for h, f := range s.figures {
		f.SizeBytes *= 2
		r.Changed(h)
		break
	}
	write()
	if n := s.beat(t, r, true); n < 1 || n > busiest+1 {
		t.Errorf("%d reports when one has changed", n)
	}
	n := s.beat(t, r, false) // at rest, and not heard
	if n == 0 {
		t.Error("nothing is reported at rest")
	}
	s.beat(t, r, true)
	s.beat(t, r, true)
	for h, f := range s.figures {
		if s.sent[h.ID] != f.SizeBytes {
			t.Fatalf("partition %s: %d was reported at last, want %d", h.ID, s.sent[h.ID], f.SizeBytes)
		}
	}
	if n := s.beat(t, r, true); n != 0 {
		t.Errorf("%d reports of what was reported", n)
	}
	// The core asks for all.
	var led []*hosted.Replica
	for h := range s.figures {
		led = append(led, h)
	}
	r.wantFull(led)
	if n := s.beat(t, r, true); n != all {
		t.Errorf("%d reports for a core that knows nothing", n)
	}
}

// What is known of where a partition could be split is news when it comes, goes, or changes by
// much.
func TestNewsOfSplitKeys(t *testing.T) {
	hints := func(left, across, hot, ascending uint32) *clusterpb.PartitionReport {
		return &clusterpb.PartitionReport{Split: &clusterpb.SplitHints{
			ByLoad:         &clusterpb.SplitKey{Key: []byte("k"), Left: left, Across: across},
			HotThousandths: hot, AscendingThousandths: ascending}}
	}
	had := hints(500, 0, 0, 0)
	for _, c := range []struct {
		what string
		now  *clusterpb.PartitionReport
		want bool
	}{
		{"the same", hints(500, 0, 0, 0), false}, {"about the same", hints(550, 50, 50, 50), false},
		{"another balance", hints(700, 0, 0, 0), true}, {"more across", hints(500, 200, 0, 0), true},
		{"a hot key", hints(500, 0, 800, 0), true}, {"ascending", hints(500, 0, 0, 900), true},
		{"nothing known", &clusterpb.PartitionReport{}, true},
		{"one key", &clusterpb.PartitionReport{Split: &clusterpb.SplitHints{OneKey: true}}, true},
		{"sustained", &clusterpb.PartitionReport{Split: had.Split, SustainedLoadMicro: 250_000}, true},
		{"a peak", &clusterpb.PartitionReport{Split: had.Split, PeakLoadMicro: 250_000}, true},
	} {
		if got := newsworthy(had, c.now); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// That a partition was calm for ten minutes is news of one that has split, and may be merged.
func TestNewsOfCalm(t *testing.T) {
	for generation, want := range map[uint64]bool{1: false, 2: true} {
		had := &clusterpb.PartitionReport{Generation: generation, MeasuredSeconds: 500}
		now := &clusterpb.PartitionReport{Generation: generation, MeasuredSeconds: 600}
		if got := newsworthy(had, now); got != want {
			t.Errorf("generation %d: %t", generation, got)
		}
	}
}

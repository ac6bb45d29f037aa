package loadmeter

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// LoadWindow is the time over which a load is averaged: older load counts for less than a third.
const LoadWindow = load.Minute

// Meter measures the cost of a replica: the time that goroutines spend evaluating and serving its
// requests and applying its entries. It is wall time, so it includes waits for a disk, and on a
// machine with too few processors for its load it exceeds the time used; in both cases the replica
// is as heavy for the node as it looks.
type Meter struct {
	// Led is the time spent on requests in passes, which only a leader has; Applying is the time
	// spent on entries, which every replica has; both in nanoseconds since the replica was opened.
	// written is the bytes of the entries that it has applied.
	Led, Applying atomic.Int64
	Written       atomic.Uint64
	// Sampling samples the requests; nil if they are not sampled.
	Sampling atomic.Pointer[Sampling]
	// Hints say where the partition could be split, from the splitter's last look; nil: not known.
	Hints atomic.Pointer[Hints]

	// The following fields belong to the goroutine that samples.
	averages load.Averages
	// generation is that of the descriptor for which the averages were measured.
	generation uint64
	// reported is the load as reported last, reportedFor the time over which it was measured.
	reported    float64
	reportedFor time.Duration
	// noted are the totals at the last call of Done; notedOnce: there was one as the leader.
	noted     load.Totals
	notedOnce bool

	// Results of the last sample, for all to read: the cost of the partition for a leader and for a
	// follower, in millionths of a processor, and requests for each second.
	LeaderMicro, followerMicro atomic.Uint64
	requests                   atomic.Uint64
	measuredSeconds            atomic.Uint32
}

// Epoch identifies the span and the leadership for which a partition's requests were sampled.
type Epoch struct{ Generation, Term uint64 }

// Hints say where a partition could be split.
type Hints struct {
	Of    Epoch
	Found *clusterpb.SplitHints
}

// Serving adds the cost of requests since began.
func (m *Meter) Serving(began time.Time) { m.Led.Add(int64(time.Since(began))) }

// totals returns the counts.
func (m *Meter) totals(w machine.Work) load.Totals {
	return load.Totals{Led: time.Duration(m.Led.Load()) + w.Pooled,
		Applied: time.Duration(m.Applying.Load()), Reads: w.Reads, Writes: w.Writes,
		ReadBytes: w.ReadBytes, WrittenBytes: m.Written.Load()}
}

// Sample averages what was added since the last sample, and reports whether the result differs
// enough from what was reported: by more than a tenth, and by a hundredth of a processor. A new
// leader, and a leader whose partition has split or merged, begins anew.
func (m *Meter) Sample(now time.Time, leading bool, generation uint64,
	work machine.Work) (news bool) {
	totals := m.totals(work)
	switch {
	case !leading:
		m.averages = load.Averages{}
		m.measuredSeconds.Store(0)
		return false
	case !m.averages.Started() || m.generation != generation:
		m.generation = generation
		m.averages.Reset(now, totals)
		m.measuredSeconds.Store(0)
		m.reportedFor = 0
		return false
	}
	m.averages.Add(now, totals)
	rate := &m.averages.Minute
	m.LeaderMicro.Store(micro(rate.Load()))
	m.followerMicro.Store(micro(rate.Applied))
	m.requests.Store(uint64(rate.Reads + rate.Writes))
	measured := m.averages.Measured(now)
	m.measuredSeconds.Store(uint32(min(measured.Seconds(), math.MaxUint32)))
	const least = 0.01
	news = math.Abs(rate.Load()-m.reported) > max(least, 0.1*m.reported)
	news = news || MeasuredEnough(m.reportedFor, measured, generation)
	if news {
		m.reported, m.reportedFor = rate.Load(), measured
	}
	return news
}

// Done returns what a leader has done since the last call, and nothing at the first call of a
// leadership. The goroutine that samples calls it.
func (m *Meter) Done(leading bool, work machine.Work) (done load.Totals) {
	now, before, known := m.totals(work), m.noted, m.notedOnce
	m.noted, m.notedOnce = now, leading
	if !leading || !known {
		return load.Totals{}
	}
	return load.Totals{Reads: now.Reads - before.Reads, Writes: now.Writes - before.Writes,
		ReadBytes:    now.ReadBytes - before.ReadBytes,
		WrittenBytes: now.WrittenBytes - before.WrittenBytes}
}

// MeasuredEnough reports whether a leader has just measured for long enough to be believed or, for
// a partition that has split, to call it calm.
func MeasuredEnough(before, now time.Duration, generation uint64) bool {
	passed := func(long time.Duration) bool { return before < long && now >= long }
	return passed(LoadWindow) || generation > 1 && passed(load.PeakFor)
}

// micro returns a number of processors in millionths.
func micro(processors float64) uint64 { return uint64(max(0, processors) * 1e6) }

// Describe adds the load to a report. The goroutine that samples calls it.
func (m *Meter) Describe(r *clusterpb.PartitionReport) {
	r.LeaderLoadMicro, r.FollowerLoadMicro = m.LeaderMicro.Load(), m.followerMicro.Load()
	r.MeasuredSeconds = m.measuredSeconds.Load()
	r.Minute, r.FiveMinutes = activity(&m.averages.Minute), activity(&m.averages.Five)
	r.SustainedLoadMicro = micro(m.averages.Sustained())
	r.PeakLoadMicro = micro(m.averages.Peak())
	// Hints for another span, or of an earlier leadership, are not valid.
	if h := m.Hints.Load(); h != nil && h.Found != nil && h.Of == (Epoch{r.Generation, r.Term}) {
		f := h.Found // a copy, whose list the receiver may trim
		r.Split = &clusterpb.SplitHints{ByLoad: f.ByLoad, BySize: f.BySize, OneKey: f.OneKey,
			HotKey: f.HotKey, HotThousandths: f.HotThousandths,
			AscendingThousandths: f.AscendingThousandths}
	}
}

// activity returns the reported form of rates; nil if there are none.
func activity(r *load.Rates) *clusterpb.Activity {
	a := &clusterpb.Activity{LoadMicro: micro(r.Load()), Reads: uint64(r.Reads + 0.5),
		Writes: uint64(r.Writes + 0.5), ReadBytes: uint64(r.ReadBytes + 0.5),
		WrittenBytes: uint64(r.WrittenBytes + 0.5)}
	if a.LoadMicro|a.Reads|a.Writes|a.ReadBytes|a.WrittenBytes == 0 {
		return nil
	}
	return a
}

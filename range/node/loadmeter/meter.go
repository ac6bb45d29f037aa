package loadmeter

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// LoadWindow is over how long a load is averaged: what is older counts for less than a third.
const LoadWindow = load.Minute

// Meter measures what a replica costs: the time that goroutines spend evaluating and serving
// its requests and applying its entries. It is wall time, so it counts a wait for a disk, and on a
// machine that has too little processor time for its load it says more than was used; both make a
// replica look as heavy as it is to the node.
type Meter struct {
	// Led is the time spent on requests in passes, which only a leader has, and applying that on
	// entries, which every replica has; in nanoseconds, since the replica was opened. written is the
	// bytes of the entries that it has applied.
	Led, Applying atomic.Int64
	Written       atomic.Uint64
	// Sampling is what samples its requests; nil: nothing does.
	Sampling atomic.Pointer[Sampling]
	// Hints are where it could be split, as the splitter has found out last; nil: nothing is known.
	Hints atomic.Pointer[Hints]

	// What follows belongs to the goroutine that samples.
	averages load.Averages
	// generation is that of the descriptor for which it was measured.
	generation uint64
	// reported and reportedFor are the load, and for how long it was measured, as reported last.
	reported    float64
	reportedFor time.Duration

	// What the last sample found, for all to read: what the partition costs a leader and a follower,
	// and requests for each second.
	LeaderMicro, followerMicro atomic.Uint64
	requests                   atomic.Uint64
	measuredSeconds            atomic.Uint32
}

// Epoch is for which span, and under which leadership, a partition's requests were sampled.
type Epoch struct{ Generation, Term uint64 }

// Hints are where a partition could be split.
type Hints struct {
	Of    Epoch
	Found *clusterpb.SplitHints
}

// Serving adds what requests have cost since began.
func (m *Meter) Serving(began time.Time) { m.Led.Add(int64(time.Since(began))) }

// totals are what was counted.
func (m *Meter) totals(w machine.Work) load.Totals {
	return load.Totals{Led: time.Duration(m.Led.Load()) + w.Pooled,
		Applied: time.Duration(m.Applying.Load()), Reads: w.Reads, Writes: w.Writes,
		ReadBytes: w.ReadBytes, WrittenBytes: m.Written.Load()}
}

// Sample averages what was added since the last one, and says whether it differs from what was
// reported by enough to be reported: by more than a tenth, and by a hundredth of a processor. A new
// leader, and one whose partition has split or merged, begins anew.
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

// MeasuredEnough says whether a leader has now measured for long enough to be believed or, of a
// partition that has split, to say that it was calm.
func MeasuredEnough(before, now time.Duration, generation uint64) bool {
	passed := func(long time.Duration) bool { return before < long && now >= long }
	return passed(LoadWindow) || generation > 1 && passed(load.PeakFor)
}

// micro is a number of processors in millionths.
func micro(processors float64) uint64 { return uint64(max(0, processors) * 1e6) }

// Describe adds to a report what is known of the load. It is for the goroutine that samples.
func (m *Meter) Describe(r *clusterpb.PartitionReport) {
	r.LeaderLoadMicro, r.FollowerLoadMicro = m.LeaderMicro.Load(), m.followerMicro.Load()
	r.MeasuredSeconds = m.measuredSeconds.Load()
	r.Minute, r.FiveMinutes = activity(&m.averages.Minute), activity(&m.averages.Five)
	r.SustainedLoadMicro = micro(m.averages.Sustained())
	r.PeakLoadMicro = micro(m.averages.Peak())
	// What was found out for another span, or under an earlier leadership, says nothing.
	if h := m.Hints.Load(); h != nil && h.Found != nil && h.Of == (Epoch{r.Generation, r.Term}) {
		f := h.Found // which the receiver may trim: not the keys themselves
		r.Split = &clusterpb.SplitHints{ByLoad: f.ByLoad, BySize: f.BySize, OneKey: f.OneKey,
			HotKey: f.HotKey, HotThousandths: f.HotThousandths,
			AscendingThousandths: f.AscendingThousandths}
	}
}

// activity is what is reported of rates; nil: there is nothing.
func activity(r *load.Rates) *clusterpb.Activity {
	a := &clusterpb.Activity{LoadMicro: micro(r.Load()), Reads: uint64(r.Reads + 0.5),
		Writes: uint64(r.Writes + 0.5), ReadBytes: uint64(r.ReadBytes + 0.5),
		WrittenBytes: uint64(r.WrittenBytes + 0.5)}
	if a.LoadMicro|a.Reads|a.Writes|a.ReadBytes|a.WrittenBytes == 0 {
		return nil
	}
	return a
}

package reports

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// Figures of a partition are reported when they differ by more than a tenth from what was
	// reported last, and by more than that many.
	leastBytes = 64 << 10
	leastKeys  = 100
	leastLoad  = 10_000 // millionths of a processor
	// leastSteady is the same of what is sustained, and of peaks.
	leastSteady = 30_000
	// busiest is how many partitions a heartbeat reports beside those that have changed by enough:
	// the ones with the greatest load.
	busiest = 50
)

// newsworthy says whether a report of a partition has to be sent, or whether the core is well
// enough informed by the one that it has had. nil: it has had none.
func newsworthy(had, r *clusterpb.PartitionReport) bool {
	switch {
	case had == nil || r.Lost != had.Lost || r.Term != had.Term:
		return true
	case r.Generation != had.Generation || r.Membership != had.Membership ||
		(r.Described == nil) != (had.Described == nil) || r.WaitsFor != had.WaitsFor ||
		r.Operator != had.Operator || r.Failures != had.Failures:
		return true
	case differs(r.SizeBytes, had.SizeBytes, leastBytes),
		differs(r.LiveKeys, had.LiveKeys, leastKeys),
		differs(r.LeaderLoadMicro, had.LeaderLoadMicro, leastLoad),
		differs(r.FollowerLoadMicro, had.FollowerLoadMicro, leastLoad),
		differs(r.SustainedLoadMicro, had.SustainedLoadMicro, leastSteady),
		differs(r.PeakLoadMicro, had.PeakLoadMicro, leastSteady), hintsDiffer(r.Split, had.Split):
		return true
	}
	return loadmeter.MeasuredEnough(time.Duration(had.MeasuredSeconds)*time.Second,
		time.Duration(r.MeasuredSeconds)*time.Second, r.Generation)
}

// hintsDiffer says whether what is known of where a partition could be split has changed by enough:
// that there is a key at all, or how well it divides.
func hintsDiffer(now, before *clusterpb.SplitHints) bool {
	part := func(a, b uint32) bool { return max(a, b)-min(a, b) >= 100 }
	point := func(a, b *clusterpb.SplitKey) bool {
		return (a == nil) != (b == nil) || part(a.GetLeft(), b.GetLeft()) ||
			part(a.GetAcross(), b.GetAcross())
	}
	return point(now.GetByLoad(), before.GetByLoad()) || point(now.GetBySize(), before.GetBySize()) ||
		now.GetOneKey() != before.GetOneKey() ||
		part(now.GetHotThousandths(), before.GetHotThousandths()) ||
		part(now.GetAscendingThousandths(), before.GetAscendingThousandths())
}

// differs says whether a figure differs from another one by more than a tenth of that, and by more
// than the least.
func differs(now, before, least uint64) bool {
	by := max(now, before) - min(now, before)
	return by > least && by > before/10
}

// weak is a report that need not be sent.
type weak struct {
	hosted *hosted.Replica
	report *clusterpb.PartitionReport
}

// takeBusiest takes those n of some reports that have the greatest load. It changes the order of
// the slice, and returns the others.
func takeBusiest(all []weak, n int) (taken, rest []weak) {
	if n <= 0 || len(all) == 0 {
		return nil, all
	}
	if len(all) > n {
		slices.SortFunc(all, func(a, b weak) int {
			return cmp.Or(cmp.Compare(b.report.LeaderLoadMicro, a.report.LeaderLoadMicro),
				cmp.Compare(a.report.Partition, b.report.Partition))
		})
	}
	n = min(n, len(all))
	return all[:n], all[n:]
}

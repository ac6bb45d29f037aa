package reports

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// Figures of a partition are reported when they differ from what was reported last by more than
	// a tenth, and by more than these amounts.
	leastBytes = 64 << 10
	leastKeys  = 100
	leastLoad  = 10_000 // millionths of a processor
	// leastSteady is that amount for sustained and peak loads.
	leastSteady = 30_000
	// busiest is how many partitions a heartbeat reports beside those that have changed enough:
	// those with the greatest load.
	busiest = 50
)

// newsworthy reports whether a report of a partition has to be sent, or whether the last one, had,
// is still good enough. had is nil if there was none.
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

// sizeMatters reports whether the size of a partition has changed enough to be reported because its
// keyspace has a quota of bytes. had is not nil.
func (r *Reports) sizeMatters(h *hosted.Replica, had, now *clusterpb.PartitionReport) bool {
	t := r.node.Table
	if t == nil || t.Load().Keyspace(
		keys.KeyspaceID(h.Listed.Load().GetKeyspace())).GetQuotaBytes() == 0 {
		return false
	}
	by := max(now.SizeBytes, had.SizeBytes) - min(now.SizeBytes, had.SizeBytes)
	return by > leastBytes && by > had.SizeBytes/100
}

// hintsDiffer reports whether the split hints have changed enough: that there is a key at all, or
// how well it divides.
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

// differs reports whether a figure differs from an earlier one by more than a tenth of that, and by
// more than least.
func differs(now, before, least uint64) bool {
	by := max(now, before) - min(now, before)
	return by > least && by > before/10
}

// weak is a report that need not be sent.
type weak struct {
	hosted *hosted.Replica
	report *clusterpb.PartitionReport
}

// takeBusiest takes the n reports with the greatest load. It changes the order of the slice, and
// returns the others.
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

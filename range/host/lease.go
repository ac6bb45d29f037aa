package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/group"
)

// lease is a leader's lease, which counts only while the clocks are believed.
type lease struct {
	published *group.Lease
	// clocks says since when the monotonic clock has gone on, and now is that clock.
	clocks *clockhealth.Health
	now    func() int64
	// lasts is how long leases last.
	lasts time.Duration
}

// Lease says whether this replica leads and its lease stands at this moment.
func (l *lease) Lease() (term uint64, ok bool) {
	if term, ok = l.published.Valid(l.now()); !ok || !l.counts() {
		return 0, false
	}
	return term, true
}

// LeaseLeft is how much longer the lease stands; not positive if it does not stand.
func (l *lease) LeaseLeft() time.Duration {
	left := l.published.Left(l.now())
	if left > 0 && !l.counts() {
		return 0
	}
	return left
}

// counts says whether the monotonic clock has gone on since the lease began, as far as is known,
// but for less than the lease has to spare.
func (l *lease) counts() bool {
	from, ok := l.clocks.LeaseFloor()
	return ok && (from == 0 || l.published.Left(from) > l.lasts)
}

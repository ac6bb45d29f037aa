package clockhealth

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// leases are measured with a monotonic clock. The monotonic clock of a virtual machine may stand
// still together with the machine, and then a leader takes its lease to be younger than it is. The
// wall clock shows this as soon as it has been corrected.
type leases struct {
	now             func() int64
	duration, slack time.Duration
	// moved is how far the clock has moved forward within the period of a lease's duration that
	// ends at end; before is the same for the period before. Under Health.mu.
	end           int64
	moved, before time.Duration
	// from is the earliest beginning of a lease that counts; 0: any time.
	from atomic.Int64
}

// Slack returns how long the monotonic clock may have stood still without a lease that is measured
// with it lasting longer than was promised. Two thirds of the margin between promise and lease
// remain for clock drift, or one third until a step has been examined.
func Slack(maxOffset, promise, lease time.Duration) time.Duration {
	return min(hlc.Step(maxOffset), (promise-lease)/3)
}

// distrust makes all leases that began before this moment invalid.
func (l *leases) distrust() { l.from.Store(l.now()) }

// looked takes how far the clock has moved since the last Look, before the new time can be read. If
// it has moved by more than the slack of leases, at once or within the duration of one, the
// monotonic clock may have stood still for as long, and no lease counts.
func (l *leases) looked(moved time.Duration) {
	if now := l.now(); now >= l.end {
		l.before = l.moved
		if now >= l.end+int64(l.duration) {
			l.before = 0
		}
		l.moved, l.end = 0, now+int64(l.duration)
	}
	l.moved += max(0, moved)
	if l.moved+l.before >= l.slack || moved <= -l.slack {
		l.distrust()
		l.moved, l.before = 0, 0
	}
}

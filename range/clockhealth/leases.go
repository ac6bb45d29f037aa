package clockhealth

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// Leases are measured with a monotonic clock. That of a virtual machine may stand still together
// with the machine, and then a leader takes its lease for younger than it is. The wall clock shows
// it, as soon as that has been put right.
type leases struct {
	now             func() int64
	duration, slack time.Duration
	// moved is by how much the clock has moved forward within a lease's duration that ends at end,
	// and before is the same of the one before. Under Health.mu.
	end           int64
	moved, before time.Duration
	// from is when the oldest lease that counts may have begun; 0: at any time.
	from atomic.Int64
}

// Slack is for how long the monotonic clock may have stood still without a lease that is measured
// with it lasting longer than was promised. Two thirds of the margin between the two are left to
// what that is for, or one third until a step has been looked at.
func Slack(maxOffset, promise, lease time.Duration) time.Duration {
	return min(hlc.Step(maxOffset), (promise-lease)/3)
}

func (l *leases) init(
	c *Config,
) {
	l.now, l.duration, l.slack = c.Now, c.LeaseDuration, c.LeaseSlack
}

// LeaseFloor is when a lease must have begun, at the earliest, to count; 0 is at any time. ok is
// false if none counts now: the monotonic clock may have stood still since the last look. It takes
// no lock, and costs one reading of each clock.
func (h *Health) LeaseFloor() (from int64, ok bool) {
	if s := h.config.Clock.Steady(); s != nil && s.Untrusted(h.leases.slack) {
		return 0, false
	}
	return h.leases.from.Load(), true
}

// distrust has no lease count that began before this moment.
func (l *leases) distrust() { l.from.Store(l.now()) }

// looked takes by how much the clock has moved since the last look, before the new time can be
// read. If it is by more than leases have to spare, at once or within the time that one lasts, the
// monotonic clock may have stood still for as long, and none of them counts.
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

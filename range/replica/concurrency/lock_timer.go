package concurrency

import "time"

// Timer calls the owner when it is time to reevaluate what waits.
type Timer struct {
	config *Config
	owner  Owner
	// timer is nil as long as nothing has waited.
	timer *time.Timer
	// at is when the timer goes off; zero: not at all.
	at time.Time
}

// disarm has the owner not called. A call may be on its way.
func (t *Timer) disarm() {
	if t.timer != nil {
		t.timer.Stop()
		t.at = time.Time{}
	}
}

// arm has the owner called at a time, or not at all if the time is zero.
func (t *Timer) arm(now, next time.Time) {
	switch {
	case t.config.manualTime():
	case next.IsZero():
		t.disarm()
	case t.timer == nil:
		t.timer, t.at = time.AfterFunc(next.Sub(now), t.owner.ReevaluateWaiters), next
	case t.at.IsZero() || next.Before(t.at):
		t.at = next
		t.timer.Reset(next.Sub(now))
	}
}

// Ticked says that the owner was called. Manager.Reevaluate follows.
func (t *Timer) Ticked() { t.at = time.Time{} }

// Soon says that the owner is called before anything is to be asked about transactions for which
// something has begun to wait just now.
func (t *Timer) Soon(now time.Time) bool {
	delay := t.config.PushDelay
	return delay > 0 && !t.config.manualTime() && !t.at.IsZero() && t.at.Before(now.Add(delay))
}

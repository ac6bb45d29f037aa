package concurrency

import "time"

// Timer calls the owner when Reevaluate is due.
type Timer struct {
	config *Config
	owner  Owner
	// timer is nil until a request has waited.
	timer *time.Timer
	// at is when the timer goes off; zero: not at all.
	at time.Time
}

// disarm cancels the call. A call may be on its way already.
func (t *Timer) disarm() {
	if t.timer != nil {
		t.timer.Stop()
		t.at = time.Time{}
	}
}

// arm schedules the call for a time, or cancels it if the time is zero.
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

// Ticked notes that the owner was called. Manager.Reevaluate follows.
func (t *Timer) Ticked() { t.at = time.Time{} }

// Soon reports that the owner will be called before a push could be due for a wait that begins now.
func (t *Timer) Soon(now time.Time) bool {
	delay := t.config.PushDelay
	return delay > 0 && !t.config.manualTime() && !t.at.IsZero() && t.at.Before(now.Add(delay))
}

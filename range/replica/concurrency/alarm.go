package concurrency

import "time"

// alarm calls the owner when it is time to reevaluate what waits.
type alarm struct {
	timer *time.Timer
	// at is when the timer goes off; zero: not at all.
	at time.Time
}

// disarm has the owner not called. A call may be on its way.
func (m *Manager) disarm() {
	if a := m.alarm; a != nil {
		a.timer.Stop()
		a.at = time.Time{}
	}
}

// arm has the owner called at a time, or not at all if it is zero.
func (m *Manager) arm(now, next time.Time) {
	a := m.alarm
	switch {
	case m.manualTime():
	case next.IsZero():
		m.disarm()
	case a == nil:
		m.alarm = &alarm{time.AfterFunc(next.Sub(now), m.owner.ReevaluateWaiters), next}
	case a.at.IsZero() || next.Before(a.at):
		a.at = next
		a.timer.Reset(next.Sub(now))
	}
}

// Ticked says that the owner was called. Reevaluate follows.
func (m *Manager) Ticked() {
	if m.alarm != nil {
		m.alarm.at = time.Time{}
	}
}

// ReevaluatesSoon says that the owner is called before anything is to be asked about transactions
// for which something has begun to wait just now.
func (m *Manager) ReevaluatesSoon(now time.Time) bool {
	delay, a := m.config.PushDelay, m.alarm
	return delay > 0 && a != nil && !m.manualTime() && !a.at.IsZero() && a.at.Before(now.Add(delay))
}

func (m *Manager) manualTime() bool { return m.config.ManualTime != nil && m.config.ManualTime() }

package coord

import (
	"context"
	"time"
)

// WithClock has a timer read another wall clock, and wait in another way; nil: as it does.
func (t *Timer) WithClock(now func() time.Time,
	wait func(context.Context, time.Duration) error) *Timer {
	t.now = now
	if wait != nil {
		t.wait = wait
	}
	return t
}

// Deadline is when the session is lost if no other renewal is confirmed, by the client's clock.
func (s *Session) Deadline() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.deadline
}

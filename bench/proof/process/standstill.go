package process

import (
	"context"
	"sync"
	"time"
)

// standstillInterval is the time between two ticks of Watch.
const standstillInterval = 5 * time.Millisecond

// Standstill measures for how long this process did not run because the machine had no time for it.
// Pauses of servers at the same time say little about the servers. The zero value is ready to use.
// Its methods may be called from any goroutine.
type Standstill struct {
	mu      sync.Mutex
	longest time.Duration
}

// Watch measures until ctx ends. Call it in a goroutine of its own.
func (s *Standstill) Watch(ctx context.Context) {
	ticker := time.NewTicker(standstillInterval)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		s.note(now.Sub(last))
		last = now
	}
}

// note takes the time between two ticks.
func (s *Standstill) note(gap time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, gap-standstillInterval)
}

// Reset drops the measurements.
func (s *Standstill) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = 0
}

// Longest returns the longest pause since Reset; zero if there was none.
func (s *Standstill) Longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.longest
}

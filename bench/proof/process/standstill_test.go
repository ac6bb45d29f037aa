package process

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// In virtual time every tick comes in time. So the only standstill is the one that the test notes.
func TestStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var s Standstill
		go s.Watch(ctx)
		time.Sleep(time.Second)
		if d := s.Longest(); d != 0 {
			t.Errorf("the process ran all the time, and is said to have stood still for %v", d)
		}
		s.note(time.Second)
		s.note(time.Second / 2)
		if d := s.Longest(); d != time.Second-standstillInterval {
			t.Errorf("two ticks came a second after each other, and %v are said to be too long", d)
		}
		s.Reset()
		time.Sleep(time.Second)
		if d := s.Longest(); d != 0 {
			t.Errorf("after a reset %v are left", d)
		}
	})
}

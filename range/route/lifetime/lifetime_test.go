package lifetime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The end of a Lifetime ends its context and all pauses, and Wait returns when its goroutines have.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		paused, over := make(chan error, 1), false
		l.Go(func() { paused <- l.Pause(t.Context(), time.Hour) })
		l.Go(func() {
			<-l.Context().Done()
			time.Sleep(time.Second)
			over = true
		})
		if l.Ended() || l.Pause(t.Context(), 0) != nil || l.Pause(t.Context(), time.Second) != nil {
			t.Error("it has ended before its end")
		}
		if !l.End() || l.End() {
			t.Error("it ends more than once, or not at all")
		}
		if err := <-paused; !errors.Is(err, ErrClosed) {
			t.Errorf("the pause ended with %v", err)
		}
		if l.Wait(); !over || !l.Ended() || l.Go(func() {}) {
			t.Error("it has not ended after its end")
		}
		if err := l.Pause(t.Context(), 0); !errors.Is(err, ErrClosed) {
			t.Errorf("a pause after the end: %v", err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Pause(cancelled, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("a pause of a call that was cancelled: %v", err)
		}
	})
}

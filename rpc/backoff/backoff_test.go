package backoff

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestStep(t *testing.T) {
	const base, limit = 10 * time.Millisecond, time.Second
	for _, c := range []struct {
		n              int
		jitter, random float64
		want           time.Duration
	}{
		{-1, 0, 0, 0}, {0, 0, 0, base}, {1, 0, 0, 2 * base}, {6, 0, 0, 64 * base}, {7, 0, 0, limit},
		{31, 0, 0, limit}, {32, 0, 0, limit}, {1000, 0, 0, limit},
		{1, 0.5, 0, 2 * base}, {1, 0.5, 0.5, 15 * time.Millisecond}, {0, 1, 0.75, base / 4},
	} {
		if got := Step(c.n, base, limit, c.jitter, c.random); got != c.want {
			t.Errorf("failure %d, jitter %v of %v: %v, want %v", c.n, c.random, c.jitter, got, c.want)
		}
	}
	if got := Step(3, 0, limit, 0, 0); got != 0 {
		t.Errorf("without a base: %v", got)
	}
	b := Backoff{Base: base, Cap: limit, AtOnce: 2}
	for n, want := range []time.Duration{0, 0, base, 2 * base} {
		if got := b.Delay(n, 0); got != want {
			t.Errorf("attempt %d: %v, want %v", n, got, want)
		}
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, d := range []time.Duration{time.Hour, 0} {
			if err := Sleep(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != time.Hour+time.Minute {
			t.Errorf("the context ended after %v", took)
		}
	})
}

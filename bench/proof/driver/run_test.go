package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunKeepsTheFirstViolations(t *testing.T) {
	r := NewRun(nil)
	var calls int
	r.OnViolation = func() {
		calls++
		if len(r.Violations()) != 0 {
			t.Error("the hook comes after the first violation was recorded")
		}
	}
	for i := range maxViolations + 5 {
		r.Violation("violation %d", i)
	}
	got := r.Violations()
	if calls != 1 || len(got) != maxViolations+1 || !strings.Contains(got[0], "violation 0") ||
		got[maxViolations] != "and 5 more" {
		t.Errorf("%d calls of the hook, violations %q", calls, got)
	}
}

func TestRunKeepsTheLastEvents(t *testing.T) {
	r := NewRun(nil)
	for i := range 3*maxEvents + 1 {
		r.Event("event %d", i)
	}
	got := r.Events()
	if len(got) < maxEvents || len(got) > 2*maxEvents || !strings.HasSuffix(got[len(got)-1],
		fmt.Sprint("event ", 3*maxEvents)) {
		t.Errorf("%d events, the last %q", len(got), got[len(got)-1])
	}
}

func TestRunCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRun(nil)
		r.Count("get", nil)
		time.Sleep(4 * time.Second)
		r.Count("get", fmt.Errorf("wrapped: %w", kv.ErrNotFound))
		r.Count("get", nil)
		if got := r.Operations(); got["get"] != 2 || got["get not found"] != 1 {
			t.Errorf("operations %v", got)
		}
		if r.Longest() != 4*time.Second || len(r.Events()) != 1 {
			t.Errorf("longest standstill %v, events %q", r.Longest(), r.Events())
		}
	})
}

func TestPace(t *testing.T) {
	busy := Pace{Factor: 2, Every: 10 * time.Second, Burst: time.Second, BurstFactor: 0.1}
	for elapsed, want := range map[time.Duration]float64{0: 2, 8 * time.Second: 2,
		9500 * time.Millisecond: 0.2, 10 * time.Second: 2} {
		if got := busy.at(elapsed); got != want {
			t.Errorf("after %v: factor %v, want %v", elapsed, got, want)
		}
	}
	if got := (Pace{}).at(time.Hour); got != 1 {
		t.Errorf("the zero pace has factor %v", got)
	}
}

func TestStorms(t *testing.T) {
	p := Pace{Factor: 100, BurstFactor: 0.5, Storms: []Storm{{10 * time.Second, 12 * time.Second},
		{20 * time.Second, 21 * time.Second}}}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		for elapsed, most := range map[time.Duration]time.Duration{
			// through the calm, and not through the storm
			0:                10*time.Second + 500*time.Millisecond,
			11 * time.Second: 500 * time.Millisecond,
			12 * time.Second: 8*time.Second + 500*time.Millisecond,
			30 * time.Second: 100 * time.Second,
		} {
			if got := p.pause(elapsed, time.Second, random); got > most {
				t.Fatalf("after %v: a rest of %v", elapsed, got)
			}
		}
	}
}

func TestRestEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRun(nil)
		random := rand.New(rand.NewPCG(1, 2))
		if !r.Rest(t.Context(), random, time.Second) || r.Elapsed() > time.Second {
			t.Errorf("a rest of up to a second took %v", r.Elapsed())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r.Rest(ctx, random, 1000*time.Hour) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Error("the rest outlived its context")
		}
	})
}

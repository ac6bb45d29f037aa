package coord_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Of many managers, whose clocks differ and whose network loses half of all, one fires in each
// period.
func TestTimerFiresOnce(t *testing.T) {
	w := begin(t)
	const managers, periods, period = 4, 8, 200 * time.Millisecond
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var mu sync.Mutex
	fired := make(map[time.Time]int)
	unknown := 0 // periods whose manager was not known when the test ended
	var all sync.WaitGroup
	for i := range managers {
		n := &network{choose: randomFates(uint64(i))}
		client := w.intercepted(n.intercept)
		timer := client.Timer("t", period, coord.FireEach).WithClock(func() time.Time {
			return time.Now().Add(time.Duration(i) * 40 * time.Millisecond)
		}, nil)
		all.Go(func() {
			for tick, err := range timer.Ticks(ctx) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					if errors.Is(err, coord.ErrOutcomeUnknown) {
						mu.Lock()
						unknown++
						mu.Unlock()
					}
					continue
				}
				n.arrive()
				mu.Lock()
				fired[tick.Due]++
				if tick.Missed != 0 || !tick.Due.Equal(tick.Due.Truncate(period)) {
					t.Errorf("%+v", tick)
				}
				if len(fired) >= periods {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	first, last := time.Time{}, time.Time{}
	for due, n := range fired {
		if n != 1 {
			t.Errorf("the period of %s was fired %d times", due, n)
		}
		if first.IsZero() || due.Before(first) {
			first = due
		}
		if due.After(last) {
			last = due
		}
	}
	if want := int(last.Sub(first)/period) + 1; len(fired)+unknown < want {
		t.Errorf("%d periods were fired of %d, and %d are unknown", len(fired), want, unknown)
	}
}

// clock is a wall clock that goes on only while something waits for it.
type clock struct{ unix atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.unix.Load()) }

func (c *clock) wait(ctx context.Context, d time.Duration) error {
	c.unix.Add(int64(d))
	return context.Cause(ctx)
}

func (c *clock) set(d time.Duration) { c.unix.Store(int64(d)) }

// ticker is a manager whose clock is c. Its next tick is asked for by next.
func (w *world) ticker(c *clock, name string, missed coord.Missed) (next func() (string, error),
	stop func()) {
	ticks, stop := iter.Pull2(w.admin.Timer(name, time.Hour, missed).WithClock(c.now, c.wait).
		Ticks(w.ctx))
	return func() (string, error) {
		tick, err, _ := ticks()
		return fmt.Sprintf("%s %d", tick.Due.Sub(time.Unix(0, 0)), tick.Missed), err
	}, stop
}

// What was missed while no manager ran is left out, fired once, or each, as is wanted. A manager
// that is busy fires what is due when it is done.
func TestTimerMissedPeriods(t *testing.T) {
	for i, want := range [][]string{
		coord.SkipMissed: {"6h0m0s 3", "7h0m0s 0"},
		coord.FireOnce:   {"5h0m0s 2", "6h0m0s 0"},
		coord.FireEach:   {"3h0m0s 0", "4h0m0s 0", "5h0m0s 0", "6h0m0s 0"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := begin(t)
			var c clock
			c.set(time.Hour + time.Minute)
			next, stop := w.ticker(&c, "t", coord.Missed(i))
			defer func() { stop() }()
			if tick, err := next(); err != nil || tick != "2h0m0s 0" {
				t.Fatalf("%s, %v", tick, err)
			}
			stop()
			c.set(5*time.Hour + time.Minute)
			next, stop = w.ticker(&c, "t", coord.Missed(i))
			for _, tick := range want {
				if got, err := next(); err != nil || got != tick {
					t.Fatalf("%s, %v; want %s", got, err, tick)
				}
			}
			c.set(9*time.Hour + time.Minute)
			busy := "9h0m0s 2"
			if coord.Missed(i) == coord.FireEach {
				busy = "7h0m0s 0"
			} else if coord.Missed(i) == coord.SkipMissed {
				busy = "9h0m0s 1"
			}
			if got, err := next(); err != nil || got != busy {
				t.Fatalf("%s, %v; want %s", got, err, busy)
			}
		})
	}
}

// A claim of a manager with a fast clock is told to the others, and nothing fires twice.
func TestTimerClockAhead(t *testing.T) {
	w := begin(t)
	var fast, right clock
	fast.set(9*time.Hour + time.Minute)
	right.set(3*time.Hour + time.Minute)
	next, stop := w.ticker(&fast, "t", coord.FireOnce)
	defer stop()
	if tick, err := next(); err != nil || tick != "10h0m0s 0" {
		t.Fatalf("%s, %v", tick, err)
	}
	next, stop = w.ticker(&right, "t", coord.FireOnce)
	defer stop()
	_, err := next()
	w.is(err, coord.ErrClockAhead)
	if tick, err := next(); err != nil || tick != "11h0m0s 0" {
		t.Fatalf("%s, %v", tick, err)
	}
}

// That it cannot be told which process has claimed a period is said: the answer was lost, others
// have claimed the next one, and the history that would tell is gone. Then it goes on.
func TestTimerCannotTell(t *testing.T) {
	w := begin(t)
	var c clock
	c.set(time.Hour + time.Minute)
	n := &network{}
	client := w.intercepted(n.intercept)
	sent := 0
	n.choose = func() fate {
		sent++
		switch sent {
		case 2:
			return answerLost
		case 3: // it asks again, too late
			other := clock{}
			other.set(c.now().Sub(time.Unix(0, 0)))
			next, stop := w.ticker(&other, "t", coord.FireEach)
			defer stop()
			if tick, err := next(); err != nil || tick != "4h0m0s 0" {
				t.Errorf("%s, %v", tick, err)
			}
			w.compact()
		}
		return passes
	}
	ticks, stop := iter.Pull2(client.Timer("t", time.Hour, coord.FireEach).WithClock(c.now, c.wait).
		Ticks(w.ctx))
	defer stop()
	for i, want := range []time.Duration{2 * time.Hour, 0, 5 * time.Hour} {
		tick, err, _ := ticks()
		if want == 0 {
			w.is(err, coord.ErrOutcomeUnknown)
		} else if err != nil || tick.Due.Sub(time.Unix(0, 0)) != want {
			t.Fatalf("tick %d is %+v, %v; want %s", i, tick, err, want)
		}
	}
}

func TestTimerRefuses(t *testing.T) {
	w := begin(t)
	for _, err := range w.admin.Timer("t", time.Millisecond, coord.SkipMissed).Ticks(w.ctx) {
		w.is(err, coord.ErrInvalidArgument)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	for _, err := range w.admin.Timer("t", time.Hour, coord.SkipMissed).Ticks(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}

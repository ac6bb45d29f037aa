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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Of many managers, whose network loses half of all, one fires in each period, and not before it is
// due, whatever the clocks of their machines show. (etcd tells no time: there these have to be about
// right.)
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
		off := time.Duration(i-1) * time.Hour
		if *against == "etcd" {
			off = time.Duration(i) * 40 * time.Millisecond
		}
		client := w.intercepted(n.intercept, coord.Wall(func() time.Time {
			return time.Now().Add(off)
		}))
		timer := client.Timer("t", period, coord.FireEach)
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
				if tick.Missed != 0 || !tick.Due.Equal(tick.Due.Truncate(period)) ||
					time.Until(tick.Due) > period {
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
	for _, want := range []string{"4h0m0s 0", "5h0m0s 0"} {
		if tick, err := next(); err != nil || tick != want {
			t.Fatalf("%s, %v; want %s", tick, err, want)
		}
	}
}

// A claim that is ahead by no more than a period stands: what was fired is not fired again.
func TestTimerClockAheadByAPeriod(t *testing.T) {
	w := begin(t)
	var fast, right clock
	fast.set(9*time.Hour + 59*time.Minute)
	right.set(9 * time.Hour)
	next, stop := w.ticker(&fast, "t", coord.FireEach)
	defer stop()
	if tick, err := next(); err != nil || tick != "10h0m0s 0" {
		t.Fatalf("%s, %v", tick, err)
	}
	next, stop = w.ticker(&right, "t", coord.FireEach)
	defer stop()
	if tick, err := next(); err != nil || tick != "11h0m0s 0" {
		t.Fatalf("%s, %v", tick, err)
	}
}

// Of what was missed the last periods are fired, as many as the timer may catch up with.
func TestTimerCatchesUpWithSome(t *testing.T) {
	w := begin(t)
	var c clock
	c.set(time.Hour + time.Minute)
	timer := func(options ...coord.TimerOption) (next func() (coord.Tick, error, bool),
		stop func()) {
		return iter.Pull2(w.admin.Timer("t", time.Hour, coord.FireEach, options...).
			WithClock(c.now, c.wait).Ticks(w.ctx))
	}
	next, stop := timer()
	tick, err, _ := next()
	w.must(err)
	stop()
	for _, catchUp := range []int{coord.DefaultCatchUp, 3} {
		last := tick.Due
		c.set(c.now().Sub(time.Unix(0, 0)) + 1000*time.Hour)
		var options []coord.TimerOption
		if catchUp != coord.DefaultCatchUp {
			options = append(options, coord.CatchUp(catchUp))
		}
		next, stop := timer(options...)
		for i := range catchUp + 1 {
			before := tick
			tick, err, _ = next()
			w.must(err)
			missed := int64(0)
			if i == 0 {
				missed = int64(1000 - catchUp)
			}
			if want := before.Due.Add(time.Duration(missed+1) * time.Hour); tick.Missed != missed ||
				!tick.Due.Equal(want) {
				t.Fatalf("tick %d is of %v, %d missed; want %v, %d", i, tick.Due, tick.Missed, want, missed)
			}
		}
		stop()
		if ran := tick.Due.Sub(last) / time.Hour; ran != 1001 {
			t.Errorf("%d periods later", ran)
		}
	}
	_, err, _ = func() (coord.Tick, error, bool) {
		next, stop := timer(coord.CatchUp(0))
		defer stop()
		return next()
	}()
	w.is(err, coord.ErrInvalidArgument)
}

// A service that tells no time, as etcd, has each manager go by the clock of its own machine. A
// claim far ahead is told, and stands for as long as its key does.
func TestTimerOfAServiceWithoutAClock(t *testing.T) {
	w := begin(t)
	const period = 200 * time.Millisecond
	refusing := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if method == coordpb.Clock_Read_FullMethodName {
			return status.Error(codes.Unimplemented, "unknown service")
		}
		return invoke(ctx, method, request, reply, conn, options...)
	}
	ticks := func(off time.Duration) (next func() (coord.Tick, error, bool), stop func()) {
		client := w.intercepted(refusing, coord.Wall(func() time.Time { return time.Now().Add(off) }))
		return iter.Pull2(client.Timer("t", period, coord.FireOnce).Ticks(w.ctx))
	}
	next, stop := ticks(time.Hour)
	tick, err, _ := next()
	w.must(err)
	if ahead := time.Until(tick.Due); ahead < time.Hour-time.Minute {
		t.Errorf("the fast one fires %v, %v ahead", tick.Due, ahead)
	}
	stop()
	next, stop = ticks(0)
	defer stop()
	_, err, _ = next()
	w.is(err, coord.ErrClockAhead)
	after := start(func() (coord.Tick, error) {
		tick, err, _ := next()
		return tick, err
	})
	_, err = w.admin.Etcd().Delete(w.ctx, w.prefix+"timer/t/last")
	w.must(err)
	tick, err = wait(w, "it fires when the key is gone", after)
	w.must(err)
	if ahead := time.Until(tick.Due); ahead > period {
		t.Errorf("the other one fires %v, %v ahead", tick.Due, ahead)
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

package timer

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wakers are both kinds, by name.
var wakers = map[string]func() waker{"system": newWaker,
	"plain": func() waker { return newPlainWaker() }}

// onEachWaker runs a test with timers of both kinds.
func onEachWaker(t *testing.T, test func(t *testing.T, a *Timers)) {
	for name, ring := range wakers {
		t.Run(name, func(t *testing.T) {
			a := start(ring())
			defer a.Close()
			test(t, a)
		})
	}
}

func TestTimersFire(t *testing.T) {
	onEachWaker(t, func(t *testing.T, a *Timers) {
		var all sync.WaitGroup
		for range 200 {
			d := time.Duration(rand.Int64N(int64(5 * time.Millisecond)))
			began := time.Now()
			all.Add(1)
			a.AfterFunc(d, func() {
				defer all.Done()
				if passed := time.Since(began); passed < d {
					t.Errorf("called after %v instead of %v", passed, d)
				}
			})
		}
		all.Wait()
	})
}

func TestAStoppedTimerDoesNotFire(t *testing.T) {
	onEachWaker(t, func(t *testing.T, a *Timers) {
		stopped := a.AfterFunc(time.Millisecond, func() {
			t.Error("was called although it was " +
				"stopped")
		})
		if !stopped.Stop() {
			t.Error("it was over before it was stopped")
		}
		if stopped.Stop() {
			t.Error("stopped twice")
		}
		later := make(chan struct{})
		timer := a.AfterFunc(2*time.Millisecond, func() { close(later) })
		<-later
		if timer.Stop() {
			t.Error("stopped after it was called")
		}
	})
}

func TestATimerIsResetAgain(t *testing.T) {
	onEachWaker(t, func(t *testing.T, a *Timers) {
		called := make(chan struct{}, 2)
		timer := a.AfterFunc(time.Hour, func() { called <- struct{}{} })
		if !timer.Reset(time.Microsecond) {
			t.Error("it did not wait when it was set again")
		}
		<-called
		if timer.Reset(-time.Second) {
			t.Error("it waited after it was called")
		}
		<-called
	})
}

// A timer that its own function sets again, as a caller does that finds that the time has not come.
func TestATimerResetsItself(t *testing.T) {
	onEachWaker(t, func(t *testing.T, a *Timers) {
		done := make(chan struct{})
		var mu sync.Mutex
		var timer Timer
		calls := 0
		mu.Lock()
		timer = a.AfterFunc(0, func() {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == 10 {
				close(done)
				return
			}
			timer.Reset(10 * time.Microsecond)
		})
		mu.Unlock()
		<-done
	})
}

func TestWhatWaitsWhenTimersAreClosedIsCalled(t *testing.T) {
	onEachWaker(t, func(t *testing.T, a *Timers) {
		var all sync.WaitGroup
		all.Add(3)
		began, d := time.Now(), 3*time.Millisecond
		check := func() {
			defer all.Done()
			if passed := time.Since(began); passed < d {
				t.Errorf("called after %v instead of %v", passed, d)
			}
		}
		a.AfterFunc(d, check)
		stopped := a.AfterFunc(time.Hour, func() { t.Error("was called although it was stopped") })
		again := a.AfterFunc(time.Hour, all.Done)
		a.Close()
		a.AfterFunc(d, check) // later than the first
		if !stopped.Stop() || !again.Reset(0) {
			t.Error("what waits does not, once the timers are closed")
		}
		all.Wait()
		a.Close()
	})
}

// Many goroutines set, stop and reset: each function is called as often as it is due, no more and
// no less.
func TestTimersBesideEachOther(t *testing.T) {
	onEachWaker(t, func(t *testing.T, a *Timers) {
		var workers, calls sync.WaitGroup
		var called atomic.Int64
		for range 8 {
			workers.Go(func() {
				for range 300 {
					calls.Add(1)
					timer := a.AfterFunc(time.Duration(rand.Int64N(int64(time.Millisecond))),
						func() { called.Add(1); calls.Done() })
					switch rand.IntN(3) {
					case 0:
						if timer.Stop() {
							calls.Done()
						}
					case 1:
						calls.Add(1)
						if timer.Reset(time.Duration(rand.Int64N(int64(time.Millisecond)))) {
							calls.Done()
						}
					}
				}
			})
		}
		workers.Wait()
		calls.Wait()
		if called.Load() == 0 {
			t.Error("nothing was called")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.mu.waiting) > 0 {
			t.Errorf("%d timers wait yet", len(a.mu.waiting))
		}
	})
}

// Beside the runtime's timers in virtual time, where both are exact: the same functions are called,
// in the same order.
func TestTimersAreLikeTheRuntimes(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			a := start(newPlainWaker())
			type act struct {
				pause, d, again time.Duration
				do              int
			}
			acts := make([]act, 20)
			for i := range acts {
				// All times differ, so that the order is certain.
				ms := func(n int) time.Duration { return time.Duration(rand.IntN(n)) * time.Millisecond }
				acts[i] = act{ms(4), ms(30) + time.Duration(3*i+1)*time.Microsecond,
					ms(30) + time.Duration(3*i+2)*time.Microsecond, rand.IntN(3)}
			}
			run := func(after func(time.Duration, func()) Timer) (order []int) {
				var mu sync.Mutex
				for i, x := range acts {
					time.Sleep(x.pause)
					timer := after(x.d, func() {
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					})
					switch x.do {
					case 0:
						time.Sleep(time.Millisecond)
						timer.Stop()
					case 1:
						time.Sleep(time.Millisecond)
						timer.Reset(x.again)
					}
				}
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(order)
			}
			want := run(Plain)
			got := run(a.AfterFunc)
			if !slices.Equal(got, want) {
				t.Errorf("called in the order %v, want %v", got, want)
			}
			a.Close()
		})
	}
}

// How late a function is called that waits for a fraction of a millisecond, in a process that has
// nothing else to do.
func BenchmarkLateness(b *testing.B) {
	measure := func(b *testing.B, after func(time.Duration, func()) Timer) {
		const wait = 300 * time.Microsecond
		called := make(chan time.Time, 1)
		var late time.Duration
		for range b.N {
			began := time.Now()
			after(wait, func() { called <- time.Now() })
			late += (<-called).Sub(began) - wait
		}
		b.ReportMetric(float64(late.Microseconds())/float64(b.N), "µs-late/op")
	}
	b.Run("timers", func(b *testing.B) {
		a := New()
		defer a.Close()
		measure(b, a.AfterFunc)
	})
	b.Run("runtime", func(b *testing.B) { measure(b, Plain) })
}

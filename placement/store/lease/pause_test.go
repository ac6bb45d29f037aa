package lease

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store/command"
)

// A process that stood still does not end the leases whose owners it did not hear.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(hlc.SystemMonotonic(), time.Minute)
		l.Changed([]Change{{ID: 1, TTLMillis: 9000}}, nil)
		l.Activate(true)
		time.Sleep(15 * time.Second)
		if due := l.Due(); !due.Paused || len(due.Ended) != 0 {
			t.Fatalf("after a pause: %+v", due)
		}
		var ended []int64
		for range 40 {
			time.Sleep(Tick)
			ended = append(ended, l.Due().Ended...)
		}
		if len(ended) != 1 {
			t.Fatalf("ended %v after a full term", ended)
		}
	})
}

// A process that stands still again and again does not prolong a lease for ever: its owner has had
// a full term to renew it.
func TestPausesDoNotProlongLeasesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := New(func() int64 { return time.Since(start).Nanoseconds() }, time.Minute)
		l.Changed([]Change{{ID: 1, TTLMillis: 9000}}, nil)
		l.Activate(true)
		running := time.Duration(0)
		for range 20 {
			time.Sleep(3 * time.Second) // it stands still
			if !l.Due().Paused {
				t.Fatal("a pause was not noticed")
			}
			for range 8 {
				time.Sleep(Tick)
				running += Tick
				if len(l.Due().Ended) > 0 {
					return
				}
			}
		}
		t.Errorf("a lease of 9 s has not run out, though the process ran for %s in all without "+
			"hearing of its owner", running)
	})
}

// A lease whose end was proposed cannot be renewed, though the process is paused before the end
// comes.
func TestAPauseDoesNotReviveALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := New(func() int64 { return time.Since(start).Nanoseconds() }, time.Minute)
		l.Changed([]Change{{ID: 1, TTLMillis: 1000}, {ID: 2, TTLMillis: 60_000}}, nil)
		l.Activate(true)
		time.Sleep(2 * time.Second)
		if due := l.Due(); len(due.Ended) != 1 || due.Paused {
			t.Fatal(due)
		}
		time.Sleep(10 * time.Second)
		if !l.Due().Paused {
			t.Fatal("a pause was not noticed")
		}
		if left, _, err := renew(l, 1); !errors.Is(err, command.ErrLeaseNotFound) {
			t.Errorf("renewed for %s, %v; its end is in the log", left, err)
		}
		if _, _, err := renew(l, 2); err != nil {
			t.Error(err)
		}
		// If its end got lost it is proposed again.
		time.Sleep(Tick)
		if due := l.Due(); !slices.Equal(due.Ended, []int64{1}) {
			t.Error(due)
		}
	})
}

// A leader that had no leases to count was not paused when the first one comes.
func TestTheFirstLeaseIsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := New(func() int64 { return time.Since(start).Nanoseconds() }, time.Minute)
		l.Activate(true)
		if l.Counting() {
			t.Error("it counts")
		}
		time.Sleep(time.Minute)
		l.Changed([]Change{{ID: 1, TTLMillis: 9000}}, nil)
		if l.Due().Paused {
			t.Error("taken for a pause")
		}
	})
}

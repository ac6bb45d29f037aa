package fairshare

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A party that asks for much has everything, and others have their turns nevertheless.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Calls: 2, Bytes: 100})
		ctx := t.Context()
		for range 2 {
			if err := s.Enter(ctx, "greedy", 10); err != nil {
				t.Fatal(err)
			}
		}
		var order []string
		var running sync.WaitGroup
		for _, party := range []string{"greedy", "greedy", "greedy", "a", "a", "b"} {
			running.Go(func() {
				if err := s.Enter(ctx, party, 10); err != nil {
					t.Error(err)
				}
				order = append(order, party)
			})
			synctest.Wait()
		}
		for range 6 {
			s.Leave(10)
			synctest.Wait()
		}
		running.Wait()
		if want := []string{"greedy", "a", "b", "greedy", "a", "greedy"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		s.Leave(10)
		s.Leave(10)
		isFree(t, s)
	})
}

// One that needs more than there is, is waited for, and one that gives up is in no other's way.
func TestLargeCallIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Calls: 10, Bytes: 100})
		if err := s.Enter(t.Context(), "a", 60); err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Enter(limited, "b", 1000); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		if err := s.Enter(t.Context(), "c", 40); err != nil || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		running.Wait()
		s.Leave(60)
		s.Leave(40)
		isFree(t, s)
		if s.Refused() != 1 {
			t.Error("the refusal is not counted")
		}
	})
}

// Calls beyond the bounds of those that wait are refused, and a call that is given up leaves
// nothing behind.
func TestNotTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Calls: 2, PartyWaits: 2, AllWait: 3})
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			if err := s.Enter(ctx, "a", 1); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 3)
		for _, party := range []string{"a", "a", "b"} {
			go func() { ended <- s.Enter(ctx, party, 1) }()
		}
		synctest.Wait()
		for _, party := range []string{"a", "b", "c"} {
			if err := s.Enter(ctx, party, 1); !errors.Is(err, ErrBusy) {
				t.Errorf("%s: %v", party, err)
			}
		}
		cancel()
		for range 3 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		s.Leave(1)
		s.Leave(1)
		isFree(t, s)
	})
}

func isFree(t *testing.T, s *Share) {
	t.Helper()
	if calls, bytes := s.Held(); calls != 0 || bytes != 0 || s.mu.waiting != 0 ||
		len(s.mu.turns) != 0 || len(s.mu.parties) != 0 {
		t.Errorf("something is left: %d calls, %d bytes, %+v", calls, bytes, &s.mu)
	}
}

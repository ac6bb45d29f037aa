package execute

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
)

// A client that asks for much has all of the budget, and others have their turns nevertheless.
func TestBudgetIsSharedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBudget(2, 100)
		ctx := t.Context()
		for range 2 {
			if err := r.enter(ctx, "greedy", 10); err != nil {
				t.Fatal(err)
			}
		}
		var order []string
		var running sync.WaitGroup
		for _, client := range []string{"greedy", "greedy", "greedy", "a", "a", "b"} {
			running.Go(func() {
				if err := r.enter(ctx, client, 10); err != nil {
					t.Error(err)
				}
				order = append(order, client)
			})
			synctest.Wait()
		}
		for range 6 {
			r.leave(10)
			synctest.Wait()
		}
		running.Wait()
		if want := []string{"greedy", "a", "b", "greedy", "a", "greedy"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		r.leave(10)
		r.leave(10)
		isFree(t, r)
	})
}

// One that needs more than there is, is waited for, and one that gives up is in no other's way.
func TestBudgetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBudget(10, 100)
		if err := r.enter(t.Context(), "a", 60); err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() {
			if err := r.enter(limited, "b", 1000); !errors.Is(err, command.ErrOverloaded) ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		if err := r.enter(t.Context(), "c", 40); err != nil || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		running.Wait()
		r.leave(60)
		r.leave(40)
		isFree(t, r)
		if r.refusals.Load() != 1 {
			t.Error("the refusal is not counted")
		}
	})
}

func isFree(t *testing.T, r *budget) {
	t.Helper()
	if r.heldCommands.Load() != 0 || r.heldBytes.Load() != 0 || len(r.mu.turns) != 0 ||
		len(r.mu.clients) != 0 {
		t.Error("the budget is not free: ", r.heldCommands.Load(), r.heldBytes.Load())
	}
}

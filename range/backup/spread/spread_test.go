package spread

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// recorded notes which node did which unit.
type recorded struct {
	mu         sync.Mutex
	by         map[int]keys.NodeID
	open, most map[keys.NodeID]int
	fails      func(node keys.NodeID, unit int) error
	done       []int
}

func (r *recorded) config(nodes ...keys.NodeID) Config {
	r.by, r.open, r.most = map[int]keys.NodeID{}, map[keys.NodeID]int{}, map[keys.NodeID]int{}
	return Config{
		Nodes: func(context.Context) ([]keys.NodeID, error) { return nodes, nil },
		Do: func(ctx context.Context, node keys.NodeID, unit int) error {
			r.mu.Lock()
			r.open[node]++
			r.most[node] = max(r.most[node], r.open[node])
			r.mu.Unlock()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.open[node]--
			if r.fails != nil {
				if err := r.fails(node, unit); err != nil {
					return err
				}
			}
			r.by[unit] = node
			return ctx.Err()
		},
		Done: func(unit int) error {
			r.done = append(r.done, unit)
			return nil
		},
	}
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// Every unit is done once, by a near node while one has room, and nodes have no more than they may.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorded
		c := r.config(1, 2, 3)
		c.Near = func(unit int) []keys.NodeID { return []keys.NodeID{9, keys.NodeID(unit%3 + 1)} }
		began := time.Now()
		if err := Run(t.Context(), c, numbers(30)); err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.done)
		if !slices.Equal(r.done, numbers(30)) || time.Since(began) > 6*time.Second {
			t.Errorf("after %v: %v", time.Since(began), r.done)
		}
		for unit, node := range r.by {
			if node != keys.NodeID(unit%3+1) {
				t.Errorf("unit %d was done by node %d", unit, node)
			}
		}
		for node, most := range r.most {
			if most != 2 {
				t.Errorf("node %d had %d units", node, most)
			}
		}
	})
}

// A unit that fails on one node is done by another node; a unit that fails everywhere ends the Run.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		r := recorded{fails: func(node keys.NodeID, _ int) error {
			if node == 1 {
				return lost
			}
			return nil
		}}
		failed := 0
		c := r.config(1, 2)
		c.Failed = func(node keys.NodeID, _ int, err error) {
			if failed++; node != 1 || !errors.Is(err, lost) {
				t.Error(node, err)
			}
		}
		if err := Run(t.Context(), c, numbers(20)); err != nil || len(r.done) != 20 || failed == 0 {
			t.Errorf("%v, %d done, %d failures", err, len(r.done), failed)
		}

		r = recorded{fails: func(keys.NodeID, int) error { return lost }}
		if err := Run(t.Context(), r.config(1, 2), numbers(3)); !errors.Is(err, lost) ||
			!strings.Contains(err.Error(), "10 times") {
			t.Error(err)
		}

		r = recorded{fails: func(keys.NodeID, int) error { return lost }}
		c = r.config(1, 2)
		c.Final = func(error) bool { return true }
		if err := Run(t.Context(), c, numbers(3)); !errors.Is(err, lost) ||
			strings.Contains(err.Error(), "times") {
			t.Error(err)
		}
	})
}

// A Run that finds no node ends after a while, and does not hold up what comes after it.
func TestNoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorded
		began := time.Now()
		err := Run(t.Context(), r.config(), numbers(3))
		if took := time.Since(began); !errors.Is(err, ErrNoNode) || took < time.Minute ||
			took > 2*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A Run whose context ends waits for what it has begun.
func TestStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorded
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := Run(ctx, r.config(1), numbers(10)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if r.open[1] != 0 || len(r.done) != 2 {
			t.Errorf("%d units are open, %v done", r.open[1], r.done)
		}
	})
}

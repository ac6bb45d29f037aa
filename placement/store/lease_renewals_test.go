package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// hanging are links of which the question about renewals gets no answer while it hangs. It notes
// for which leases it was asked.
type hanging struct {
	*links
	mu    sync.Mutex
	hangs bool
	asked [][]int64
}

func (h *hanging) RenewAll(
	ctx context.Context, leader keys.ReplicaID, leases []int64,
) ([]time.Duration, error) {
	h.mu.Lock()
	hangs := h.hangs
	h.asked = append(h.asked, slices.Clone(leases))
	h.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.links.RenewAll(ctx, leader, leases)
}

func (h *hanging) set(hangs bool) (asked [][]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs, asked, h.asked = hangs, h.asked, nil
	return asked
}

// hung is a member of a core whose leader has a lease of the id 1, and does not answer for it.
func hung(t *testing.T) (*Store, *hanging) {
	h := &hanging{}
	c, l := linked(t, 3, func(config *Config) { config.Peers = h })
	h.links = l
	c.elect(c.members[0])
	do(t, c.members[0].store, Grant(1, 60_000))
	c.members[1].catchUp()
	h.set(true)
	return c.members[1].store, h
}

// A renewal whose caller has given up is not asked for, and does not delay those that come later.
func TestAbandonedRenewalsAreNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := hung(t)
		ctx, cancel := context.WithTimeout(t.Context(), indexTimeout/2)
		defer cancel()
		var callers sync.WaitGroup
		ask := func(id int64) {
			callers.Go(func() {
				if _, err := s.Renew(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("lease %d: %v", id, err)
				}
			})
		}
		ask(1)
		synctest.Wait()
		for id := range int64(3 * maxRenewed) {
			ask(id + 2)
		}
		callers.Wait()
		if asked := h.set(false); len(asked) != 1 || !slices.Equal(asked[0], []int64{1}) {
			t.Fatalf("%d questions, the first about %v", len(asked), asked[0])
		}
		began := time.Now()
		if term, err := s.Renew(t.Context(), 1); err != nil || term != time.Minute {
			t.Fatalf("%s, %v", term, err)
		}
		// What hangs ends first.
		if took := time.Since(began); took > indexTimeout {
			t.Errorf("took %s", took)
		}
		if asked := h.set(false); len(asked) != 1 || !slices.Equal(asked[0], []int64{1}) {
			t.Errorf("asked %d times, about %d leases at first", len(asked), len(asked[0]))
		}
	})
}

// What waits for a leader that does not answer has a bound. Callers beyond it wait, and all are
// served when it answers again.
func TestWaitingRenewalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := hung(t)
		waiting := func() int {
			s.renewals.mu.Lock()
			defer s.renewals.mu.Unlock()
			return s.renewals.mu.weight
		}
		const each = maxRenewed / 2
		var callers sync.WaitGroup
		call := func() {
			callers.Go(func() {
				terms, err := s.RenewAll(t.Context(), slices.Repeat([]int64{1}, each))
				if err != nil || len(terms) != each || slices.Contains(terms, 0) {
					t.Errorf("%d terms, %v", len(terms), err)
				}
			})
		}
		// One question is under way: nothing is taken from what waits meanwhile.
		call()
		synctest.Wait()
		for range maxRenewalsWaiting/each + 5 {
			call()
		}
		synctest.Wait()
		if n := waiting(); n > maxRenewalsWaiting || n <= maxRenewalsWaiting-each {
			t.Errorf("%d leases wait, the bound is %d", n, maxRenewalsWaiting)
		}
		if _, err := s.renewals.ask(t.Context(), s, make([]int64, each)); !errors.Is(err,
			errRenewalsWait) {
			t.Error(err)
		}
		h.set(false)
		callers.Wait()
		if n := waiting(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
		for _, asked := range h.set(false) {
			if len(asked) > maxRenewed {
				t.Errorf("a question about %d leases", len(asked))
			}
		}
	})
}

package proof

import (
	"fmt"
	"sync"
	"time"
)

// ages remembers when transactions began, for the question who was older. The zero ages is empty.
type ages struct {
	mu struct {
		sync.Mutex
		all map[*age]struct{}
	}
}

// age is a transaction: when its first attempt began, and the present one; and until when it may be in the way, zero if it has not ended.
type age struct{ began, attempt, until time.Time }

const (
	// ageMargin is how much sooner one of two transactions has to have begun to be the older one for certain: a transaction's age is given by
	// some node's clock, and these may differ by that much, with what a new leader's is ahead.
	ageMargin = time.Second
	// ageLinger is for how long a transaction that has failed may still be in the way: requests of it may wait somewhere for a lock. One that
	// has succeeded waits for none.
	ageLinger = elderPatience
)

// begin notes a new transaction.
func (a *ages) begin(now time.Time) *age {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.all == nil {
		a.mu.all = make(map[*age]struct{})
	}
	own := &age{began: now, attempt: now}
	a.mu.all[own] = struct{}{}
	return own
}

// attempt notes that it runs again.
func (a *ages) attempt(own *age, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own.attempt = now
}

// end notes its end.
func (a *ages) end(own *age, now time.Time, failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if own.until = now; failed {
		own.until = now.Add(ageLinger)
	}
	for other := range a.mu.all {
		// No attempt that goes on can be older than that.
		if !other.until.IsZero() && now.Sub(other.until) > elderPatience {
			delete(a.mu.all, other)
		}
	}
}

// wounded says, if it is not empty, why its present attempt cannot have been aborted for an older one.
func (a *ages) wounded(own *age, now time.Time) (complaint string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := time.Duration(-1)
	for other := range a.mu.all {
		if other == own || !other.until.IsZero() && other.until.Before(own.attempt) {
			continue
		}
		later := other.began.Sub(own.began)
		if later < ageMargin {
			return ""
		}
		if next < 0 || later < next {
			next = later
		}
	}
	return fmt.Sprintf("it has been trying for %v, and the oldest of the others began %v later than it", now.Sub(own.began), next)
}

package workloads

import (
	"fmt"
	"sync"
	"time"
)

// ages remembers when transactions began, for the question which was older. The zero ages is empty.
type ages struct {
	mu struct {
		sync.Mutex
		all map[*age]struct{}
		// attempts are those that have been begun of them, by their ids.
		attempts map[string]*age
	}
}

// age is a transaction: when its first attempt began, and when the last one ended, zero if it has
// not.
type age struct {
	began, ended time.Time
	attempts     []string
}

const (
	// ageMargin is how much later one of two transactions has to have begun to be the younger one
	// for certain: a transaction's age is given by some node's clock, and these may differ by that
	// much, with what a new leader's is ahead.
	ageMargin = time.Second
	// ageKept is for how long a transaction that has ended is remembered. A request of an attempt
	// that was given up may come late, wait for a lock until its time is up (elderPatience), and
	// have younger ones aborted. That is right, but only if it is the older one.
	ageKept = 10 * time.Minute
)

// begin notes a new transaction.
func (a *ages) begin(now time.Time) *age {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.all == nil {
		a.mu.all, a.mu.attempts = make(map[*age]struct{}), make(map[string]*age)
	}
	own := &age{began: now}
	a.mu.all[own] = struct{}{}
	return own
}

// attempt notes an attempt of it, before anything is asked for by that.
func (a *ages) attempt(own *age, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own.attempts = append(own.attempts, id)
	a.mu.attempts[id] = own
}

// end notes its end.
func (a *ages) end(own *age, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own.ended = now
	for other := range a.mu.all {
		if !other.ended.IsZero() && now.Sub(other.ended) > ageKept {
			delete(a.mu.all, other)
			for _, id := range other.attempts {
				delete(a.mu.attempts, id)
			}
		}
	}
}

// wounded says, if it is not empty, why a transaction cannot have been aborted for that attempt, as
// it was told.
func (a *ages) wounded(own *age, by string, now time.Time) (complaint string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	trying := now.Sub(own.began)
	switch other := a.mu.attempts[by]; {
	case by == "":
		return fmt.Sprintf("it has been trying for %v, and is not told for which transaction it "+
			"was aborted", trying)
	case other == nil:
		return fmt.Sprintf("it has been trying for %v, and is said to have been aborted for %s, "+
			"which is none", trying, by)
	case other == own:
		return fmt.Sprintf("it has been trying for %v, and was aborted for attempt %s of its own",
			trying, by)
	case other.began.Sub(own.began) >= ageMargin:
		return fmt.Sprintf("it has been trying for %v, and %s began %v later than it", trying, by,
			other.began.Sub(own.began))
	}
	return ""
}

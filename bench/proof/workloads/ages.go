package workloads

import (
	"fmt"
	"sync"
	"time"
)

// ages remembers when transactions began, so that a workload can decide which of two transactions
// is older. The zero ages is empty.
type ages struct {
	mu struct {
		sync.Mutex
		all map[*age]struct{}
		// attempts maps the ids of attempts to their transactions.
		attempts map[string]*age
	}
}

// age is a transaction. began is the time of its first attempt. ended is the end of its last
// attempt; zero while the transaction runs.
type age struct {
	began, ended time.Time
	attempts     []string
}

const (
	// ageMargin: a transaction is certainly the younger of two if it began later by at least
	// ageMargin. Some node's clock sets the age of a transaction. Clocks of nodes, and the clock of
	// a new leader, may differ by less than ageMargin.
	ageMargin = time.Second
	// ageKept is how long a transaction that has ended is remembered. A late request of an attempt
	// that was given up may wait for a lock until its deadline (elderPatience), and cause the abort
	// of younger transactions. Such an abort is right, but only if the attempt's transaction is
	// older.
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

// attempt notes an attempt of a transaction, before the attempt sends its first request.
func (a *ages) attempt(own *age, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own.attempts = append(own.attempts, id)
	a.mu.attempts[id] = own
}

// end notes the end of a transaction, and forgets transactions that ended ageKept ago.
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

// wounded checks a report that the transaction own was aborted in favour of the attempt by. It
// returns why the report cannot be true; empty if it can.
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

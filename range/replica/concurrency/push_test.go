package concurrency

import (
	"testing"
	"time"
)

// A push that was sent long ago, and for which nothing waits any more, is not due: a timer set for
// it would go off again and again while the other push is under way.
func TestAPushForNothingIsNotDue(t *testing.T) {
	now := time.Now()
	ps := &Pushes{config: &Config{Pushes: true}}
	for name, q := range map[string]*waitQueue{
		"timestamp": {timestamp: push{due: now.Add(-time.Second)}, abort: push{inFlight: true}},
		"abort":     {timestamp: push{inFlight: true}, abort: push{due: now.Add(-time.Second)}},
	} {
		q.of = &Transaction{}
		var work Work
		if again := ps.ask(q, now, &work); !again.IsZero() || len(work.Pushes) > 0 {
			t.Errorf("%s: again at %v, %d pushes", name, again.Sub(now), len(work.Pushes))
		}
	}
}

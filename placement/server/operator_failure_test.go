package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// obstructLocked has an order fail or wait, as the leader of its partition reports it.
func (f *fleet) obstructLocked(p *fleetPartition, o *clusterpb.Order) bool {
	if f.obstructed == nil {
		return false
	}
	why, failed := f.obstructed(o)
	if p.waits = why; why == "" || p.operator != o.Operator {
		p.operator, p.failures = o.Operator, 0
	}
	if failed {
		p.failures++
	}
	return why != ""
}

func (f *fleet) obstruct(obstructed func(*clusterpb.Order) (string, bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.obstructed = obstructed
}

// awaitOutcome waits until an operator has ended with a text.
func (f *fleet) awaitOutcome(atMost time.Duration, text string) {
	f.t.Helper()
	f.await(atMost, "an operator ends: "+text, func() bool {
		return slices.ContainsFunc(events(f.t, f), func(e *clusterpb.Event) bool {
			return strings.Contains(e.Outcome, text)
		})
	})
}

// A merge that the leader refuses changes no descriptor. The attempts count all the same, and the
// operator ends with the refusal as its reason.
func TestRefusedMergeEnds(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", f.settled)
		f.obstruct(func(o *clusterpb.Order) (string, bool) {
			if o.Consume == nil {
				return "", false
			}
			return "partition 101 is at another epoch", true
		})
		f.merge(100)
		f.awaitOutcome(time.Minute, "tried 5 times, and refused: partition 101 is at another epoch")
		f.await(time.Minute, "nothing is under way", f.idle)
		// What failed before is not counted for the next one.
		f.obstruct(nil)
		f.merge(100)
		f.awaitWhole(time.Minute, "they have merged", func() bool {
			return f.settled() && len(f.where()) == 1
		})
	})
}

// A step that fails with one error after the other does not advance.
func TestAlternatingErrorsAreNoAdvance(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		n := 0
		f.obstruct(func(o *clusterpb.Order) (string, bool) {
			if len(o.Target.Replicas) == 3 {
				return "", false
			}
			n++
			return fmt.Sprintf("error %d", n), true
		})
		f.kill(f.where()[100][1])
		f.awaitOutcome(20*time.Minute, "cancelled: it has not advanced for 11m")
		f.obstruct(nil)
		f.await(40*time.Minute, "the replica is replaced", func() bool {
			return f.sound(3) && f.idle()
		})
	})
}

// An operator may wait for one thing after the other, as for a copy that comes nearer to its end. It
// is given up when no descriptor has changed for long.
func TestWaitingHasABound(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		n := 0
		f.obstruct(func(o *clusterpb.Order) (string, bool) {
			if len(o.Target.Replicas) == 3 {
				return "", false
			}
			n++
			return fmt.Sprintf("node 4 lacks %d entries", n), false
		})
		f.kill(f.where()[100][1])
		f.await(7*time.Minute, "it is replaced", func() bool { return !f.idle() })
		began := time.Now()
		f.awaitOutcome(80*time.Minute, "cancelled: it has not advanced for 1h")
		if waited := time.Since(began); waited < 50*time.Minute {
			t.Errorf("it was given up after %s", waited)
		}
	})
}

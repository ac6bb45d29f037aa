package sim

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
)

// settles maps each kind of fault to the kind of package calm that determines how long the effects
// of the fault last after its end (calm.Settling).
var settles = map[string]calm.Kind{
	"between": calm.Links, "clients-away": calm.Links, "cut": calm.Links, "isolation": calm.Links,
	"leader-apart": calm.Links, "members": calm.Links, "merge": calm.Links,
	"split":    calm.Links,
	"messages": calm.Links, "move": calm.Links, "parting": calm.Links, "reset": calm.Links,
	"slow-disk": calm.Links, "slow-link": calm.Links,
	"transfer": calm.Links, "transfer-coordination": calm.Links,
	"reset-coordination": calm.Links,

	// A server whose disk fails ends, and is started again.
	"at-merge": calm.Restarts, "crash": calm.Restarts, "disk-error": calm.Restarts,
	"locked-crash": calm.Restarts, "power-cut": calm.Restarts, "stop": calm.Restarts,
	"voter-crash": calm.Restarts,

	"wipe": calm.Replacements,

	// The clocks of a paused server stand still.
	"clock": calm.Clocks, "clock-drift": calm.Clocks, "clock-wrong": calm.Clocks,
	"pause": calm.Clocks,

	"retire": calm.Links,

	"disk-low": calm.Room,
}

// storm says that a fault begins, and returns a function that says that the fault has ended. A
// fault that goes on in a goroutine beside the schedule has its own storm, which begins before the
// storm of the schedule is over.
func (w *World) storm(e Effect) (over func()) {
	settling := calm.Settling(settles[kindOf(e).name], w.electionTimeout)
	w.Weather.Begin()
	return func() { w.Weather.End(settling) }
}

// outlasts says that clocks within the bound can be further apart than leases last. Servers are not
// made for that: a server refuses a read at a timestamp that the leader's clock reaches only after
// the end of its lease. While another server's clock is ahead, servers refuse all reads.
func (w *World) outlasts() bool { return w.electionTimeout < 2*maxClock }

// outlive ends the storm of a fault that has ended. If outlasts is true, the storm of a clock fault
// lasts until everything is healed.
func (w *World) outlive(e Effect, over func()) {
	switch e.(type) {
	case clockSet, clockDrift:
		if w.outlasts() {
			w.lasting = append(w.lasting, over)
			return
		}
	}
	over()
}

// finale is how long clients work in calm at the end of every run. It is longer than any of their
// operations may take.
const finale = 25 * time.Second

// lastCalm lets clients work in calm for a while, when everything is whole again.
func (w *World) lastCalm() error {
	since, ok := w.Weather.Clears()
	if !ok {
		return fmt.Errorf("the schedule is over, and a fault is active")
	}
	w.BeginFinale()
	time.Sleep(time.Until(since) + finale)
	return nil
}

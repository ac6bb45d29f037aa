package sim

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
)

// settles says what kind of fault each is, for how long it is felt after its end (calm.Settling).
var settles = map[string]calm.Kind{
	"between": calm.Links, "clients-away": calm.Links, "cut": calm.Links, "isolation": calm.Links,
	"leader-apart": calm.Links, "members": calm.Links, "merge": calm.Links,
	"split":    calm.Links,
	"messages": calm.Links, "move": calm.Links, "parting": calm.Links, "reset": calm.Links,
	"slow-disk": calm.Links, "slow-link": calm.Links,
	"transfer": calm.Links, "transfer-coordination": calm.Links,
	"reset-coordination": calm.Links,

	// A disk that fails ends its server, which is started again.
	"at-merge": calm.Restarts, "crash": calm.Restarts, "disk-error": calm.Restarts,
	"locked-crash": calm.Restarts, "power-cut": calm.Restarts, "stop": calm.Restarts,
	"voter-crash": calm.Restarts,

	"wipe": calm.Replacements,

	// The clocks of a server that is paused stand still.
	"clock": calm.Clocks, "clock-drift": calm.Clocks, "clock-wrong": calm.Clocks,
	"pause": calm.Clocks,

	"retire": calm.Links,

	"disk-low": calm.Room,
}

// storm says that a fault begins, and returns what says that it has ended. What goes on beside the
// schedule has a storm of its own, which begins before that of the schedule is over.
func (w *World) storm(e Effect) (over func()) {
	settling := calm.Settling(settles[kindOf(e).name], w.electionTimeout)
	w.Weather.Begin()
	return func() { w.Weather.End(settling) }
}

// outlasts says that clocks within the bound can be further apart than leases last. The servers are
// not made for that: a read at a moment that the leader's own clock reaches only after the end of
// its lease is refused, and while another server's clock is ahead all reads are.
func (w *World) outlasts() bool { return w.electionTimeout < 2*maxClock }

// outlive ends the storm of a fault whose time is over; but if clocks that differ are more than the
// servers are made for, that of a clock lasts until everything is healed.
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

// finale is how long clients work in calm at the end of every run. It is longer than any operation
// of theirs may take.
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

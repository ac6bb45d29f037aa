package clockhealth

import (
	"math"
	"time"
)

const (
	// measureFor is for how many election timeouts after its start a process waits at most for
	// measurements of more clocks than one.
	measureFor = 3
	// disputedByStep is what disputedFor is if it was this process's clock that has moved. Then
	// that is probably wrong; but a slow network can look like it, and that may last.
	disputedByStep = 30 * time.Second
)

// quarantine is why a clock is not believed before peers have confirmed it.
type quarantine struct {
	// jump is by how much the clock jumped last; zero if this is about the start.
	jump time.Duration
	// until is when one peer is enough to end that of a start.
	until int64
	// patience is how long the clock has to be disputed until it is believed all the same, and
	// since the beginning of that; math.MaxInt64 if it is not.
	patience time.Duration
	since    int64
}

// settled says whether the clock goes with those of the peers well enough, or long enough.
func (q *quarantine) settled(c consensus, now int64) bool {
	if c != disputed {
		q.since = math.MaxInt64
		return c == undisputed
	}
	q.since = min(q.since, now)
	return now-q.since >= int64(q.patience)
}

// Start begins the quarantine of a process that starts: what the clock of the machine shows is not
// believed before it has been compared. A process without peers believes it.
func (h *Health) Start() {
	if all, _ := h.config.Peers(); all == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.quarantine = &quarantine{
		until:    h.config.Now() + measureFor*int64(h.config.ElectionTimeout),
		patience: disputedFor, since: math.MaxInt64,
	}
}

// jumpedLocked begins the quarantine of a clock that has jumped. before is how it stood to the
// others until now.
func (h *Health) jumpedLocked(jump time.Duration, before Standing, enough int) {
	q := &quarantine{jump: jump, patience: disputedFor, since: math.MaxInt64}
	switch {
	case h.mu.quarantine != nil:
		q.patience = h.mu.quarantine.patience // what was before the first jump counts
	case before.consensus == undisputed && before.Peers >= enough:
		q.patience = disputedByStep
	}
	h.mu.quarantine = q
}

// peers is how many peers there are, whether any is heard, and how many of their clocks have to be
// measured to tell whether this one is right: those of most that are heard.
type peers struct {
	any, heard bool
	enough     int
}

func (h *Health) peers() peers {
	all, silent := h.config.Peers()
	return peers{any: all > 0, heard: all > silent, enough: (all-silent)/2 + 1}
}

// confirmedLocked says whether the quarantine is over.
func (h *Health) confirmedLocked(p peers, now int64) bool {
	q := h.mu.quarantine
	s := h.mu.offsets.standing(now, 0)
	settled := q.settled(s.consensus, now)
	switch {
	case !p.any:
		return true // there is no clock to compare with, and none to disagree
	case p.heard && s.Peers >= p.enough && settled:
		h.mu.outvoted, h.mu.streak = false, 0
		return true
	}
	if q.jump != 0 || now < q.until || h.mu.outvoted {
		return false
	}
	// Too few are measured to confirm it. But those that are, one at least, must not say otherwise:
	// the verdict on that needs two checks, a second apart, and with short ticks the time is up
	// before. As long as there is none, clients may reach this process that no other process
	// reaches, and would take the time from it.
	return s.Peers > 0 && settled
}

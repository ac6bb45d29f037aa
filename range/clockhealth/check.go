package clockhealth

import "time"

// CheckPeriod is how often Check is to be called.
const CheckPeriod = time.Second

const (
	// checks is how many checks in a row must agree to change the verdict.
	checks = 2
	// disputedFor is how long a clock must have been disputed for the processes behind it to have
	// stopped: they forget their former measurements, and then need a few pings and some checks.
	disputedFor = 2*window + (checks+1)*CheckPeriod
)

// Check compares the clock with those of the peers. It is called once per CheckPeriod. It reports
// whether the verdict changed, the verdict, and what it is based on.
func (h *Health) Check() (changed, outvoted bool, s Standing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &h.mu
	s = m.offsets.standing(h.config.Now(), 0)
	bad := s.consensus == against
	if s.Peers == 0 {
		bad = m.outvoted // no peer was heard: the verdict stays
	}
	if bad == m.outvoted {
		m.streak = 0
		return false, bad, s
	}
	needs := checks
	if s.consensus == disputed {
		needs = int(disputedFor / CheckPeriod) // those that are behind stop first
	}
	if m.streak++; m.streak < needs {
		return false, m.outvoted, s
	}
	m.streak, m.outvoted = 0, bad
	return true, bad, s
}

package clockhealth

const (
	// checks is how many in a row must agree before the verdict changes.
	checks = 2
	// disputedFor is how long a clock has been disputed when those that are behind it have stopped:
	// what they have measured before is forgotten, and then they need a few pings and some checks.
	disputedFor = 2*window + (checks+1)*CheckPeriod
)

// Standing is how a clock stands to those of its peers, as far as they are measured.
type Standing struct {
	consensus consensus
	// Peers is how many are measured, Off how many of those differ by more than the maximum offset.
	Off, Peers int
}

// consensus is whether a clock goes with those of the others. It does not if it is off by more than
// the limit from half of all clocks. But of three clocks the second can be near both others, and
// these be too far from each other; which of those two is right cannot be known. The one that is
// behind knows for sure that the other is ahead, and stops serving. The one that is ahead may see
// the other behind because of a slow network, and goes on.
type consensus int

const (
	// against: it is off from half of all clocks, or behind one that is not.
	against consensus = iota
	// disputed: it goes with the others, and seems to be ahead of one that goes with the others,
	// too.
	disputed
	// undisputed: it is within the limit of all clocks that go with the others.
	undisputed
)

// consensusOf is how the clock that shows 0 agrees with all clocks, of which it is one. It takes
// the square of their number, which is that of hosts that share groups.
func consensusOf(clocks []int64, limit int64) consensus {
	majority := func(of int64) bool {
		near := 0
		for _, c := range clocks {
			if c-of <= limit && of-c <= limit {
				near++
			}
		}
		return near > len(clocks)/2
	}
	if !majority(0) {
		return against
	}
	found := undisputed
	for _, c := range clocks {
		switch {
		case c > limit && majority(c):
			return against
		case c < -limit && majority(c):
			found = disputed
		}
	}
	return found
}

// Check compares the clock with those of the peers. It is called once in CheckPeriod, and reports
// whether the verdict changed, and what it is founded on.
func (h *Health) Check() (changed, outvoted bool, s Standing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &h.mu
	s = m.offsets.standing(h.config.Now(), 0)
	bad := s.consensus == against
	if s.Peers == 0 {
		bad = m.outvoted // no peer was heard: no news
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

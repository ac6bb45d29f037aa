package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

const (
	// skewWindow is half of how far back measurements count.
	skewWindow = 2 * time.Second
	// skewSamples is how many measurements a peer's offset needs.
	skewSamples = 5
	// skewChecks is how many checks in a row (one a second) must agree before anything changes.
	skewChecks = 2
	// skewMost bounds what is measured, so that the difference of two offsets fits, whatever a peer sends.
	skewMost = 1 << 60
)

// skew measures this node's clock against those of its peers, by the pings that they send all the time.
//
// A ping that arrives says what the peer's clock was when it was sent. Its delay is not known and never negative, and makes
// the peer look slow; so of several measurements of a peer's offset the greatest is the best. They count for two to four seconds,
// so that a jump of a peer's clock, or what a pause of this process did to them, passes. Steps of this node's own clock are known, and
// change all of them at once.
//
// INVARIANT: of two nodes that measure the same clocks, and find each other's more than the limit apart, at most one goes with the others (agreement).
type skew struct {
	limit int64 // nanoseconds
	// unhealthy is the verdict: this node's clock does not go with the others.
	unhealthy atomic.Bool

	mu struct {
		sync.Mutex
		peers map[uint64]*peerOffset
	}
	// Of the health goroutine: how many checks in a row disagreed with unhealthy.
	streak int
}

// peerOffset is the best measurement in this window and in the one before. Offsets are remote minus local, in nanoseconds.
type peerOffset struct {
	windowEnd       int64 // monotonic
	best, before    int64
	count, previous int
}

func (s *skew) init(limit time.Duration) {
	s.limit = int64(limit)
	s.mu.peers = make(map[uint64]*peerOffset)
}

// step says whether a clock that has moved by so much between two looks has made a step. What is less is left to the checks.
func (s *skew) step(moved time.Duration) bool {
	least := hlc.Step(time.Duration(s.limit))
	return moved >= least || moved <= -least
}

// heard takes a ping at its arrival; reading is hlc.Clock.Machine, now is the monotonic time. The clock is read with the lock held:
// whatever is measured after a look is measured with the clock as it was then. Nothing is measured between a step and the look that finds it.
func (s *skew) heard(from uint64, ping *peerpb.HostPing, reading func() (wall int64, moved time.Duration), now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wall, moved := reading()
	if s.step(moved) {
		return
	}
	offset := min(max(int64(ping.GetPhysical())-wall, -skewMost), skewMost)
	p := s.mu.peers[from]
	if p == nil {
		p = &peerOffset{windowEnd: now + int64(skewWindow)}
		s.mu.peers[from] = p
	}
	p.advance(now)
	if p.count == 0 || offset > p.best {
		p.best = offset
	}
	p.count++
}

// advance begins a new window if the present one is over.
func (p *peerOffset) advance(now int64) {
	if now < p.windowEnd {
		return
	}
	p.before, p.previous = p.best, p.count
	if now >= p.windowEnd+int64(skewWindow) {
		p.previous = 0 // nothing was heard for a whole window
	}
	p.best, p.count = 0, 0
	p.windowEnd = now + int64(skewWindow)
}

// offset is the peer's offset as known now.
func (p *peerOffset) offset(now int64) (ns int64, known bool) {
	p.advance(now)
	if p.count+p.previous < skewSamples {
		return 0, false
	}
	switch {
	case p.count == 0:
		return p.before, true
	case p.previous == 0:
		return p.best, true
	}
	return max(p.best, p.before), true
}

// offsets returns what is known of each peer that was heard lately, and forgets those that were not.
func (s *skew) offsets(now int64) map[uint64]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offsetsLocked(now)
}

func (s *skew) offsetsLocked(now int64) map[uint64]time.Duration {
	known := make(map[uint64]time.Duration, len(s.mu.peers))
	for id, p := range s.mu.peers {
		if ns, ok := p.offset(now); ok {
			known[id] = time.Duration(ns)
		}
		if p.count+p.previous == 0 {
			delete(s.mu.peers, id)
		}
	}
	return known
}

// agrees says whether a peer's clock is, as far as is known, close enough to this one's.
func (s *skew) agrees(peer uint64, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.peers[peer]
	if p == nil {
		return true
	}
	ns, known := p.offset(now)
	return !known || (ns <= s.limit && ns >= -s.limit)
}

// look takes over what this node's clock has gained or lost, unless it jumped, or has made a step after which it may be wrong. Then all
// measurements are forgotten: they were made with another clock; before is how that stood to the others. found is told by how much it has moved
// before anybody sees it. Of the health goroutine.
func (s *skew) look(steady *hlc.Steady, now int64, found func(moved time.Duration)) (moved time.Duration, jumped bool, before standing) {
	// With the lock held until the measurements go by the new reading, so that none is made with that and moved after all.
	s.mu.Lock()
	defer s.mu.Unlock()
	moved, jumped = steady.Look(func(moved time.Duration) bool {
		if found(moved); !s.step(moved) {
			return true
		}
		after := s.standingLocked(now, int64(moved)).agreement
		// A step back leaves nobody behind who was not before.
		return after == undisputed || after == disputed && moved < 0 && s.standingLocked(now, 0).agreement == disputed
	})
	switch {
	case jumped:
		before = s.standingLocked(now, 0)
		clear(s.mu.peers)
	case s.step(moved):
		for _, p := range s.mu.peers {
			p.best -= int64(moved)
			p.before -= int64(moved)
		}
	}
	return moved, jumped, before
}

// standing is how this node's clock stands to those of its peers, as far as they are measured.
type standing struct {
	agreement agreement
	// peers is how many are measured, off how many of those differ by more than the limit.
	off, peers int
}

func (s *skew) standing(now int64) standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standingLocked(now, 0)
}

// standingLocked is the standing if this node's clock moves.
func (s *skew) standingLocked(now, moved int64) (stands standing) {
	known := s.offsetsLocked(now)
	stands.peers = len(known)
	clocks := make([]int64, 1, len(known)+1) // this node's own is 0
	for _, o := range known {
		ns := int64(o) - moved
		if ns > s.limit || ns < -s.limit {
			stands.off++
		}
		clocks = append(clocks, ns)
	}
	stands.agreement = agreementOf(clocks, s.limit)
	return stands
}

// agreement is whether a clock goes with those of the others. It does not if it is off by more than the limit from half of all clocks. But of three clocks the second can
// be near both others, and these be too far from each other; nobody can tell which of those two is right. The one that is behind knows for sure
// that the other is ahead, and stops serving. The one that is ahead may see the other behind because of a slow network, and goes on.
type agreement int

const (
	// none: it is off from half of all clocks, or behind one that is not.
	none agreement = iota
	// disputed: it goes with the others, and seems to be ahead of one that goes with the others, too.
	disputed
	// undisputed: it is within the limit of all clocks that go with the others.
	undisputed
)

// agreementOf is how the clock that shows 0 agrees with all clocks, of which it is one. It takes the square of their number, which is that of
// hosts that share groups.
func agreementOf(clocks []int64, limit int64) agreement {
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
		return none
	}
	found := undisputed
	for _, c := range clocks {
		switch {
		case c > limit && majority(c):
			return none
		case c < -limit && majority(c):
			found = disputed
		}
	}
	return found
}

// believe makes it the verdict that the clock is right. Of the health goroutine.
func (s *skew) believe() {
	s.unhealthy.Store(false)
	s.streak = 0
}

// check is called once a second; it reports whether the verdict changed, and what it is founded on.
func (s *skew) check(now int64) (changed bool, stands standing) {
	stands = s.standing(now)
	bad := stands.agreement == none
	if stands.peers == 0 {
		// Nobody was heard: no news.
		bad = s.unhealthy.Load()
	}
	if bad == s.unhealthy.Load() {
		s.streak = 0
		return false, stands
	}
	needs := skewChecks
	if stands.agreement == disputed {
		needs = int(disputedFor / healthPeriod) // those that are behind stop first
	}
	if s.streak++; s.streak < needs {
		return false, stands
	}
	s.streak = 0
	s.unhealthy.Store(bad)
	return true, stands
}

package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

const (
	// skewWindow is half of how far back measurements count.
	skewWindow = 2 * time.Second
	// skewSamples is how many measurements a peer's offset needs.
	skewSamples = 5
	// skewChecks is how many checks in a row (one a second) must agree before anything changes.
	skewChecks = 2
)

// skew measures this node's clock against those of its peers, by the pings that they send all the time.
//
// A ping that arrives says what the peer's clock was when it was sent. Its delay is not known and never negative, and makes
// the peer look slow; so of several measurements of a peer's offset the greatest is the best. They count for two to four seconds,
// so that a jump of a peer's clock, or what a pause of this process did to them, passes.
type skew struct {
	limit int64 // nanoseconds
	// unhealthy: off from a majority of the peers.
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

// heard takes a ping at its arrival; physical reads this node's clock, now is the monotonic time. The clock is read with the lock held:
// whatever is measured after restart is measured with the clock as it was then.
func (s *skew) heard(from uint64, ping *peerpb.HostPing, physical func() int64, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offset := int64(ping.GetPhysical()) - physical()
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

// restart forgets all measurements: this node's clock is another one than they were made with.
func (s *skew) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.mu.peers)
}

// confirmed says whether at least so many peers are measured, and most of those agree with this node's clock. Then the verdict is that
// it is right. Of the health goroutine.
func (s *skew) confirmed(now int64, least int) bool {
	off, peers := s.disagreeing(now)
	if peers < least || off > peers/2 {
		return false
	}
	s.unhealthy.Store(false)
	s.streak = 0
	return true
}

// disagreeing is how many of how many peers that are measured have other clocks.
func (s *skew) disagreeing(now int64) (off, peers int) {
	known := s.offsets(now)
	for _, o := range known {
		if int64(o) > s.limit || int64(o) < -s.limit {
			off++
		}
	}
	return off, len(known)
}

// check is called once a second; it reports whether the verdict changed, and how many of how many peers disagree.
func (s *skew) check(now int64) (changed bool, off, peers int) {
	off, peers = s.disagreeing(now)
	bad := off > peers/2
	if peers == 0 {
		// Nobody was heard: no news.
		bad = s.unhealthy.Load()
	}
	if bad == s.unhealthy.Load() {
		s.streak = 0
		return false, off, peers
	}
	if s.streak++; s.streak < skewChecks {
		return false, off, peers
	}
	s.streak = 0
	s.unhealthy.Store(bad)
	return true, off, peers
}

package clockhealth

import "time"

const (
	// window is half of how far back measurements count.
	window = 2 * time.Second
	// leastSamples is how many measurements a peer's offset needs.
	leastSamples = 5
	// mostOffset bounds what is measured, so that the difference of two offsets fits, whatever a
	// peer sends.
	mostOffset = 1 << 60
)

// offsets measures this process's clock against those of its peers, by the pings that they send all
// the time.
//
// A ping that arrives says what the peer's clock was when it was sent. Its delay is not known and
// never negative, and makes the peer look slow; so of several measurements of a peer's offset the
// greatest is the best. They count for two to four seconds, so that a jump of a peer's clock, or
// what a pause of this process did to them, passes. Steps of this process's own clock are known,
// and change all of them at once. Under Health.mu.
type offsets struct {
	limit int64
	peers map[uint64]*peerOffset
}

// peerOffset is the best measurement in this window and in the one before. Offsets are remote minus
// local, in nanoseconds.
type peerOffset struct {
	windowEnd       int64 // monotonic
	best, before    int64
	count, previous int
}

func (o *offsets) init(limit int64) {
	o.limit = limit
	o.peers = make(map[uint64]*peerOffset)
}

// measure takes one measurement.
func (o *offsets) measure(peer uint64, offset, now int64) {
	offset = min(max(offset, -mostOffset), mostOffset)
	p := o.peers[peer]
	if p == nil {
		p = &peerOffset{windowEnd: now + int64(window)}
		o.peers[peer] = p
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
	if now >= p.windowEnd+int64(window) {
		p.previous = 0 // nothing was heard for a whole window
	}
	p.best, p.count = 0, 0
	p.windowEnd = now + int64(window)
}

// offset is the peer's offset as known now.
func (p *peerOffset) offset(now int64) (ns int64, known bool) {
	p.advance(now)
	if p.count+p.previous < leastSamples {
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

// of is what is known of one peer.
func (o *offsets) of(peer uint64, now int64) (ns int64, known bool) {
	p := o.peers[peer]
	if p == nil {
		return 0, false
	}
	return p.offset(now)
}

// known is what is known of each peer that was heard lately. It forgets those that were not.
func (o *offsets) known(now int64) map[uint64]time.Duration {
	known := make(map[uint64]time.Duration, len(o.peers))
	for id, p := range o.peers {
		if ns, ok := p.offset(now); ok {
			known[id] = time.Duration(ns)
		}
		if p.count+p.previous == 0 {
			delete(o.peers, id)
		}
	}
	return known
}

// shift takes in that this process's clock has moved.
func (o *offsets) shift(moved time.Duration) {
	for _, p := range o.peers {
		p.best -= int64(moved)
		p.before -= int64(moved)
	}
}

// forget drops all measurements: they were made with another clock.
func (o *offsets) forget() { clear(o.peers) }

// standing is how the clock stands to those that are measured, if it moves by so much.
func (o *offsets) standing(now int64, moved time.Duration) (s Standing) {
	known := o.known(now)
	s.Peers = len(known)
	clocks := make([]int64, 1, len(known)+1) // this process's own is 0
	for _, offset := range known {
		ns := int64(offset - moved)
		if ns > o.limit || ns < -o.limit {
			s.Off++
		}
		clocks = append(clocks, ns)
	}
	s.consensus = consensusOf(clocks, o.limit)
	return s
}

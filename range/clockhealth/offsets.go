package clockhealth

import "time"

const (
	// window is half of the time for which measurements count.
	window = 2 * time.Second
	// leastSamples is how many measurements a peer's offset needs.
	leastSamples = 5
	// mostOffset bounds a measurement, so that the difference of two offsets does not overflow,
	// whatever a peer sends.
	mostOffset = 1 << 60
)

// offsets measures this process's clock against those of its peers, by the pings that they send
// regularly.
//
// A ping contains the peer's clock at the time of sending. Its delay is unknown and never negative,
// and makes the peer's clock look slow; so of several measurements of an offset the greatest is the
// best. Measurements count for two to four seconds, so that a jump of a peer's clock, or the effect
// of a pause of this process, passes. Steps of this process's own clock are known, and change all
// measurements at once. Under Health.mu.
type offsets struct {
	limit int64
	peers map[uint64]*peerOffset
}

// peerOffset holds the best measurement in the present window and in the one before. Offsets are
// remote minus local, in nanoseconds.
type peerOffset struct {
	windowEnd       int64 // monotonic
	best, before    int64
	count, previous int
}

func (o *offsets) init(limit int64) {
	o.limit = limit
	o.peers = make(map[uint64]*peerOffset)
}

// measure adds one measurement.
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

// offset returns the peer's offset as known now.
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

// of returns the offset of one peer.
func (o *offsets) of(peer uint64, now int64) (ns int64, known bool) {
	p := o.peers[peer]
	if p == nil {
		return 0, false
	}
	return p.offset(now)
}

// known returns the offsets of the peers that were heard lately, and forgets the others.
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

// shift updates the measurements after this process's clock has moved.
func (o *offsets) shift(moved time.Duration) {
	for _, p := range o.peers {
		p.best -= int64(moved)
		p.before -= int64(moved)
	}
}

// forget drops all measurements: they were made with another clock.
func (o *offsets) forget() { clear(o.peers) }

// standing returns the standing of the clock if it moves by so much.
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

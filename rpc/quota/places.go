package quota

import (
	"math/rand/v2"
	"sync"
)

// Places are a number of places. Safe for concurrent use.
type Places struct {
	limit, granted int

	mu      sync.Mutex
	total   int
	parties map[string]*party
}

type party struct{ holders []*Place }

// Place is one place that is held.
type Place struct {
	of     string
	end    func()
	index  int // among the party's holders; -1: given back, or lost
	places *Places
}

// NewPlaces makes a number of places, at least 1. Each party is granted a few: these it may hold
// whatever its share, as long as there are any.
func NewPlaces(limit, granted int) *Places {
	return &Places{limit: max(limit, 1), granted: granted, parties: make(map[string]*party)}
}

// Enter takes a place for a party. If the party holds more than its share then, or there are no
// more places than are held, another holder loses its place: end is called for it, from this
// goroutine, and must not block nor call Places. That holder need not Leave.
func (p *Places) Enter(of string, end func()) *Place {
	place := &Place{of: of, end: end, places: p}
	p.mu.Lock()
	x := p.parties[of]
	if x == nil {
		x = &party{}
		p.parties[of] = x
	}
	var loses *Place
	switch {
	case len(x.holders) > 0 && len(x.holders) >= p.granted && len(x.holders) >= p.limit-p.total:
		loses = x.holders[rand.IntN(len(x.holders))]
	case p.total >= p.limit:
		largest := p.largestLocked().holders
		loses = largest[rand.IntN(len(largest))]
	}
	if loses != nil {
		p.removeLocked(loses)
	}
	if p.parties[of] == nil { // it has lost its last one
		p.parties[of] = x
	}
	place.index = len(x.holders)
	x.holders = append(x.holders, place)
	p.total++
	p.mu.Unlock()
	if loses != nil {
		loses.end()
	}
	return place
}

// Leave gives a place back. It may be called again, and for one that was lost.
func (l *Place) Leave() {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.places.removeLocked(l)
}

func (p *Places) largestLocked() (largest *party) {
	for _, x := range p.parties {
		if largest == nil || len(x.holders) > len(largest.holders) {
			largest = x
		}
	}
	return largest
}

func (p *Places) removeLocked(l *Place) {
	if l.index < 0 {
		return
	}
	x := p.parties[l.of]
	last := len(x.holders) - 1
	x.holders[l.index] = x.holders[last]
	x.holders[l.index].index = l.index
	x.holders[last] = nil
	x.holders = x.holders[:last]
	l.index = -1
	p.total--
	if last == 0 {
		delete(p.parties, l.of)
	}
}

// Held is how many places are held.
func (p *Places) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

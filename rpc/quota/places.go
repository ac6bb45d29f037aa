package quota

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Places is a number of places that principals share. Safe for concurrent use.
type Places struct {
	limit, granted int
	settled        time.Duration

	mu      sync.Mutex
	total   int
	parties map[string]*party
}

type party struct{ holders []*Place }

// Place is one place that is held.
type Place struct {
	of     string
	end    func()
	since  time.Time
	index  int // among the party's holders; -1: given back, or lost
	places *Places
}

// NewPlaces returns limit places, at least 1. Each principal may hold granted places whatever its
// share, as long as places are left. A place is not lost before it was held for the time settled.
func NewPlaces(limit, granted int, settled time.Duration) *Places {
	return &Places{limit: max(limit, 1), granted: granted, settled: settled,
		parties: make(map[string]*party)}
}

// draws is how many places are drawn before a newcomer is refused.
const draws = 8

// Enter takes a place for a principal. If the principal then holds more than its share, or all
// places are taken, another holder loses its place: the end function of that holder is called, on
// this goroutine, and must not block nor call Places. That holder need not call Leave. If no holder
// may lose its place yet, Enter returns nil.
func (p *Places) Enter(of string, end func()) *Place {
	place := &Place{of: of, end: end, since: time.Now(), places: p}
	loses, ok := p.enter(place)
	if !ok {
		return nil
	}
	if loses != nil {
		loses.end()
	}
	return place
}

// HeldBy returns how many places a principal has.
func (p *Places) HeldBy(of string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ofLocked(of).holders)
}

// enter takes a place, and returns the place that is lost for it, if any.
func (p *Places) enter(place *Place) (loses *Place, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.ofLocked(place.of)
	held := len(from.holders)
	full := held > 0 && held >= p.granted && held >= p.limit-p.total
	if !full && p.total >= p.limit {
		full, from = true, p.largestLocked()
	}
	if full {
		if loses = from.draw(place.since.Add(-p.settled)); loses == nil {
			return nil, false
		}
		p.removeLocked(loses)
	}
	x := p.ofLocked(place.of)
	p.parties[place.of] = x
	place.index = len(x.holders)
	x.holders = append(x.holders, place)
	p.total++
	if invariants.Enabled {
		p.checkInvariantsLocked()
	}
	return loses, true
}

// ofLocked returns a principal's state; an empty one if it holds nothing.
func (p *Places) ofLocked(name string) *party {
	if x := p.parties[name]; x != nil {
		return x
	}
	return &party{}
}

// draw draws a place that has been held since before a time; nil if it finds none.
func (x *party) draw(before time.Time) *Place {
	for range draws {
		if place := x.holders[rand.IntN(len(x.holders))]; !place.since.After(before) {
			return place
		}
	}
	return nil
}

// Leave returns a place. It may be called again, and for a place that was lost.
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
	if invariants.Enabled {
		p.checkInvariantsLocked()
	}
}

// checkInvariantsLocked checks the number of places against those that hold them.
func (p *Places) checkInvariantsLocked() {
	invariants.Check(p.total >= 0 && p.total <= p.limit, "%d places are held, and there are %d",
		p.total, p.limit)
	held := 0
	for name, x := range p.parties {
		held += len(x.holders)
		invariants.Check(len(x.holders) > 0, "%q holds no place, and is among the holders", name)
	}
	invariants.Check(held == p.total, "%d places are held, and %d are counted", held, p.total)
}

// Held returns how many places are held.
func (p *Places) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

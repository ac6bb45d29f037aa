package quota

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// paceChecked is how often it is looked whether processors are short. The multiple doubles as
	// often while they are, up to maxPace, and falls by one every paceFalls.
	paceChecked = 50 * time.Millisecond
	paceFalls   = 100 * time.Millisecond
	maxPace     = 32
	// paceBurst is how far a party may be ahead, longestPause bounds one pause.
	paceBurst    = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// paceForgets is for how long a party counts after its last work.
	paceForgets = time.Second
)

// Pace slows parties down that use much of the processors while others wait for one. Each party
// has a clock, which work moves on by what it costs and a multiple of that. A party whose clock is
// ahead waits. So a party that does little never waits, and one that does much gets no more than a
// known part of a processor, over however many connections it comes.
//
// The multiple is the same for all. It is 0 unless processors are short and there are several
// parties; while they are short it doubles, and then it falls again step by step (as windows do in
// congestion control: Chiu and Jain, "Analysis of the increase and decrease algorithms for
// congestion avoidance", 1989).
//
// Safe for concurrent use.
type Pace struct {
	short func() bool

	// slowing is set while the multiple is not 0.
	slowing atomic.Bool

	mu       sync.Mutex
	multiple int
	// checked is when short was asked last, fell when the multiple fell or rose last.
	checked, fell time.Time
	parties       map[string]*paced
}

// paced is a party that has worked lately.
type paced struct{ clock, last time.Time }

// NewPace makes a Pace. short says whether processors were short since it was asked last; it is
// asked now and then, by one goroutine at a time, and must not block.
func NewPace(short func() bool) *Pace {
	return &Pace{short: short, parties: make(map[string]*paced)}
}

// Short says whether processors are short, and there are several parties.
func (p *Pace) Short() bool { return p.slowing.Load() }

// Charge charges a party for work, by about how much processor time it costs, and says how long to
// wait before it.
func (p *Pace) Charge(of string, costs time.Duration, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.parties[of]
	if x == nil {
		x = &paced{}
		p.parties[of] = x
	}
	x.last = now
	p.checkLocked(now)
	if p.multiple == 0 {
		x.clock = now
		return 0
	}
	if x.clock.Before(now) {
		x.clock = now
	}
	wait = min(max(x.clock.Sub(now)-paceBurst, 0), longestPause)
	x.clock = x.clock.Add(costs * time.Duration(1+p.multiple))
	return wait
}

// Ahead is for how long a party would have to wait now, but for the bounds of one pause.
func (p *Pace) Ahead(of string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.parties[of]; x != nil && p.multiple > 0 {
		return max(x.clock.Sub(now)-paceBurst, 0)
	}
	return 0
}

// checkLocked looks now and then whether processors are short.
func (p *Pace) checkLocked(now time.Time) {
	if now.Sub(p.checked) < paceChecked {
		return
	}
	p.checked = now
	for of, x := range p.parties {
		if now.Sub(x.last) > paceForgets {
			delete(p.parties, of)
		}
	}
	switch short := p.short(); {
	case len(p.parties) < 2:
		p.multiple = 0
	case short:
		p.multiple = min(max(2*p.multiple, 1), maxPace)
		p.fell = now
	case p.multiple > 0 && now.Sub(p.fell) >= paceFalls:
		p.multiple--
		p.fell = now
	}
	if slowing := p.multiple > 0; slowing != p.slowing.Load() {
		p.slowing.Store(slowing)
	}
}

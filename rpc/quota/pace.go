package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// paceChecked is how often it is looked whether processors are short. While they are, the multiple
	// doubles at the first look, and grows to four times of that at the next, then to eight times, from
	// leastPace up to maxPace.
	paceChecked = 50 * time.Millisecond
	leastPace   = 1.0 / 8
	maxPace     = 32
	// paceHalves is within what time it halves after that. It falls with the third power of the time,
	// so within twice of this to the 256th part, which ends it.
	paceHalves = 6 * time.Second
	// paceBurst is how far a party may be ahead, longestPause bounds one pause.
	paceBurst    = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// paceForgets is for how long a party counts after its last work.
	paceForgets = time.Second
)

// Pace slows parties down that use much of the processors while others wait for one. Each party
// has a clock, which work moves on by what it costs and a multiple of that, shared among the
// processors. A party whose clock is ahead waits. So a party that does little never waits, and one
// that does much gets no more than a known part of the processors, over however many connections it
// comes.
//
// The multiple is the same for all. It is 0 unless processors are short and there are several
// parties; while they are short it grows, the faster the longer they are. Then it stays near where
// that was enough, and falls the faster the longer ago processors were short: it is to find out
// seldom that it is still needed, as others wait each time, and soon that it is not (as windows do
// in congestion control: Ha, Rhee and Xu, "CUBIC: a new TCP-friendly high-speed TCP variant", 2008).
//
// Safe for concurrent use.
type Pace struct {
	processors int
	short      func() bool

	// slowing is set while the multiple is not 0.
	slowing atomic.Bool

	mu       sync.Mutex
	multiple float64
	// most is what the multiple was when processors were short last, at shortAt.
	most    float64
	shortAt time.Time
	// growth is how many times the multiple has grown at the last look; 1: processors were not short.
	growth float64
	// checked is when short was asked last.
	checked time.Time
	parties map[string]*paced
}

// paced is a party that has worked lately.
type paced struct{ clock, last time.Time }

// NewPace makes a Pace for so many processors. short says whether they were short since it was asked
// last; it is asked now and then, by one goroutine at a time, and must not block.
func NewPace(processors int, short func() bool) *Pace {
	return &Pace{processors: processors, short: short, growth: 1,
		parties: make(map[string]*paced)}
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
	x.clock = x.clock.Add(time.Duration(float64(costs) * (1 + p.multiple) / float64(p.processors)))
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
	short := p.short()
	if !short {
		p.growth = 1
	}
	switch {
	case len(p.parties) < 2:
		p.multiple = 0
	case short:
		p.growth = min(2*p.growth, maxPace)
		p.multiple = min(max(p.growth*p.multiple, leastPace), maxPace)
		p.most, p.shortAt = p.multiple, now
	case p.multiple > 0:
		halvings := math.Pow(float64(now.Sub(p.shortAt))/float64(paceHalves), 3)
		if p.multiple = p.most * math.Exp2(-halvings); p.multiple < leastPace {
			p.multiple = 0
		}
	}
	if slowing := p.multiple > 0; slowing != p.slowing.Load() {
		p.slowing.Store(slowing)
	}
}

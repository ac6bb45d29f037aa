package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// paceChecked is how often it is looked whether processors are short. While they are, the
	// multiple doubles at the first look, and grows to four times of that at the next, then to eight
	// times, from leastPace up to maxPace.
	paceChecked = 50 * time.Millisecond
	leastPace   = 1.0 / 8
	maxPace     = 32
	// contendedPace is the multiple at least while processors are contended, and a party that is no
	// stranger does less than one in lightShare of what another one does. What parties do is averaged
	// over usedLasts.
	contendedPace = 4
	lightShare    = 8
	usedLasts     = time.Second
	// paceHalves is within what time it halves after that. It falls with the third power of the time,
	// so within twice of this to the 256th part, which ends it.
	paceHalves = 6 * time.Second
	// paceBurst is how far a party may be ahead, longestPause bounds one pause.
	paceBurst    = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// paceForgets is for how long a party counts after its last work.
	paceForgets = time.Second
	// mostDebt bounds what a party owes. A party that owes lostStanding is a stranger again.
	mostDebt     = 10 * time.Second
	lostStanding = 2 * time.Second
	// strangersPrice is how many times of what its work costs a stranger owes for it.
	strangersPrice = 50
	// standingLasts is for how long a party is no stranger after its last useful work, at least;
	// standings bounds how many such parties are remembered.
	standingLasts = 10 * time.Minute
	standings     = 1 << 16
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
// in congestion control: Ha, Rhee and Xu, "CUBIC: a new TCP-friendly high-speed TCP variant",
// 2008).
//
// By the time that processors are found to be short, many requests of others have waited. So what
// is of no use, and what is large, has a price beside that at all times: a debt, which is paid by
// waiting, whether or not processors are short. And so has all that a stranger does: a party of
// which nothing has been of use yet.
//
// Safe for concurrent use.
type Pace struct {
	processors int
	strain     func(now time.Time) Strain

	// slowing is set while the multiple is not 0.
	slowing atomic.Bool

	mu       sync.Mutex
	multiple float64
	// most is what the multiple was when processors were short last, at shortAt.
	most    float64
	shortAt time.Time
	// growth is how many times the multiple has grown at the last look; 1: processors were not short.
	growth float64
	// checked is when strain was asked last.
	checked time.Time
	parties map[string]*paced
	// known are those that are no strangers, and until when.
	known map[string]time.Time
}

// paced is a party that has worked lately. free is when it will have paid its debts, and settled
// what it owes as a stranger. used is what its work has cost lately.
type paced struct {
	clock, last, free, settled time.Time
	used                       time.Duration
}

// owes is for how long it has to wait for both.
func (x *paced) owes(now time.Time) time.Duration {
	return max(x.free.Sub(now), x.settled.Sub(now), 0)
}

// later puts a time off by a debt; no further than mostDebt from now.
func later(at time.Time, debt time.Duration, now time.Time) time.Time {
	if at.Before(now) {
		at = now
	}
	if at, most := at.Add(debt), now.Add(mostDebt); at.Before(most) {
		return at
	}
	return now.Add(mostDebt)
}

// Strain is how much of the processors there is.
type Strain int

// Relaxed: enough. Contended: other processes want them, too. Short: what can run has to wait.
const (
	Relaxed Strain = iota
	Contended
	Short
)

// NewPace makes a Pace for so many processors. strain says what they were since it was asked last;
// it is asked now and then, by one goroutine at a time, and must not block.
func NewPace(processors int, strain func(now time.Time) Strain) *Pace {
	return &Pace{processors: processors, strain: strain, growth: 1,
		parties: make(map[string]*paced), known: make(map[string]time.Time)}
}

// Short says whether processors are short, and there are several parties.
func (p *Pace) Short() bool { return p.slowing.Load() }

// Charge charges a party for work, by about how much processor time it costs. It says how long to
// wait before it, and whether the party is a stranger, of which Useful is to be told.
func (p *Pace) Charge(of string, costs time.Duration, now time.Time) (wait time.Duration,
	stranger bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.partyLocked(of, now)
	p.checkLocked(now)
	x.used += costs
	if stranger = !p.knownLocked(of, now); stranger {
		x.settled = later(x.settled, strangersPrice*costs/time.Duration(p.processors), now)
	}
	ahead := x.owes(now)
	if p.multiple == 0 {
		x.clock = now
	} else {
		if x.clock.Before(now) {
			x.clock = now
		}
		ahead = max(ahead, x.clock.Sub(now))
		x.clock = x.clock.Add(time.Duration(float64(costs) * (1 + p.multiple) / float64(p.processors)))
	}
	return min(max(ahead-paceBurst, 0), longestPause), stranger
}

// Owe adds to a party's debt, by processor time, which is shared among the processors. It waits for
// that before further work.
func (p *Pace) Owe(of string, debt time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.partyLocked(of, now)
	x.free = later(x.free, debt/time.Duration(p.processors), now)
	if x.free.Sub(now) > lostStanding {
		delete(p.known, of)
	}
}

// Useful notes that something that a party has done was of use: it is no stranger for some time,
// and owes nothing as such, as long as it has no large debts.
func (p *Pace) Useful(of string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.parties[of]; x != nil {
		if x.free.Sub(now) > lostStanding {
			return
		}
		x.settled = time.Time{}
	}
	if _, ok := p.known[of]; !ok && len(p.known) >= standings {
		for other := range p.known { // any
			delete(p.known, other)
			break
		}
	}
	p.known[of] = now.Add(standingLasts)
}

// knownLocked says whether a party is no stranger. One that goes on working is none for longer.
func (p *Pace) knownLocked(of string, now time.Time) bool {
	until, ok := p.known[of]
	switch {
	case !ok:
		return false
	case now.After(until):
		delete(p.known, of)
		return false
	case until.Sub(now) < standingLasts/2:
		p.known[of] = now.Add(standingLasts)
	}
	return true
}

func (p *Pace) partyLocked(of string, now time.Time) *paced {
	x := p.parties[of]
	if x == nil {
		x = &paced{}
		p.parties[of] = x
	}
	x.last = now
	return x
}

// Ahead is for how long a party would have to wait now, but for the bounds of one pause.
func (p *Pace) Ahead(of string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.parties[of]
	if x == nil {
		return 0
	}
	ahead := x.owes(now)
	if p.multiple > 0 {
		ahead = max(ahead, x.clock.Sub(now))
	}
	return max(ahead-paceBurst, 0)
}

// checkLocked looks now and then whether processors are short.
func (p *Pace) checkLocked(now time.Time) {
	if now.Sub(p.checked) < paceChecked {
		return
	}
	keeps := math.Exp2(-float64(now.Sub(p.checked)) / float64(usedLasts))
	p.checked = now
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for of, x := range p.parties {
		x.used = time.Duration(float64(x.used) * keeps)
		most = max(most, x.used)
		if idle := now.Sub(x.last) > paceForgets; idle && x.owes(now) == 0 {
			delete(p.parties, of)
		} else if !idle && x.used < least && p.knownLocked(of, now) {
			least = x.used
		}
	}
	light := least < most/lightShare
	strain := p.strain(now)
	if strain != Short {
		p.growth = 1
	}
	switch {
	case len(p.parties) < 2:
		p.multiple = 0
	case strain == Short:
		p.growth = min(2*p.growth, maxPace)
		p.multiple = min(max(p.growth*p.multiple, leastPace), maxPace)
		p.most, p.shortAt = p.multiple, now
	case strain == Contended && light && p.multiple <= contendedPace:
		p.multiple = contendedPace
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

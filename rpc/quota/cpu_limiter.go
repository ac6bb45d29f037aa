package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// lookEvery is the time between two checks whether processors are short. The first check that
	// finds them short halves each client's share of the processors, and so does each further one.
	lookEvery = 50 * time.Millisecond
	// leastShare is the least share of all processors, a fraction. Less would not help the others,
	// and a client with one request a second still gets its answers.
	leastShare = 1.0 / 32
	// shareHolds is how long the share stays low after processors were last short. Each attempt to
	// raise it may turn out too high, which makes others wait for lookEvery: once in 7 s that
	// affects less than one request in 100, so the 99th percentile does not grow.
	shareHolds = 6 * time.Second
	// shareDoubles is the time in which the share doubles after shareHolds, so that it is whole
	// after 5 s.
	shareDoubles = time.Second
	// activeFor is how long a client counts as one of several after its last work.
	activeFor = time.Second
	// burst is the processor time, on all processors, that a client may use beyond its rate before
	// it waits. A client that sends only now and then never waits.
	burst = 100 * time.Millisecond
	// longestWait bounds one wait: after 3 s without a read the other side takes a connection for
	// dead.
	longestWait = 2 * time.Second
	// longestDelay bounds the sum of a client's future waits: that long after it has stopped, the
	// client owes nothing.
	longestDelay = 10 * time.Second
	// unverifiedPart is the part of the processors, one in so many, that a client gets before its
	// first answer: some 60 connections with TLS in a second, after 6 free ones, for each
	// processor.
	unverifiedPart = 50
	// verifiedFor is how long a client stays verified after its last work.
	verifiedFor = 10 * time.Minute
	// maxClients bounds the clients that are remembered, which takes some MiB. Beyond it an
	// arbitrary client is forgotten: it is unverified then, and owes nothing.
	maxClients = 1 << 14
)

// CPULimiter limits the processor time that each client of a server gets. It has up to three token
// buckets per client (golang.org/x/time/rate), whose tokens are nanoseconds of processor time:
//
//   - penalties, always: for useless or harmful work. It fills as fast as the processors work.
//   - trial, until the client is verified by its first answer: for all its work. It fills at one
//     fiftieth of that rate.
//   - fair, while processors are short and several clients are active: for all work of each. It
//     fills at the part share of that rate, which is the same for all clients.
//
// A client whose bucket is empty waits until it has tokens again. A client that does little never
// waits, and one that does much gets a known part of the processors, over however many connections.
// A client that is alone is not limited, except for penalties and trial.
//
// The share is halved while processors are short, stays, and grows back. Raising it is tried
// seldom, because others wait at each attempt.
//
// Safe for concurrent use.
type CPULimiter struct {
	// processors is the number of processors: nanoseconds of processor time per nanosecond.
	processors float64
	short      func() bool
	// limiting is set while share is below 1.
	limiting atomic.Bool

	mu    sync.Mutex
	share float64
	// looked is when short was last called, shortAt when it last returned true.
	looked, shortAt time.Time
	clients         map[string]*cpuClient
}

// cpuClient is the state of a client. Guarded by CPULimiter.mu.
type cpuClient struct {
	// last is when the client last worked.
	last time.Time
	// trial is nil once the client is verified, fair while nothing is limited.
	penalties, trial, fair *rate.Limiter
}

// NewCPULimiter returns a limiter for so many processors. short reports whether processors were
// short since its last call. It is called by one goroutine at a time, and must not block.
func NewCPULimiter(processors int, short func() bool) *CPULimiter {
	return &CPULimiter{processors: float64(processors), short: short, share: 1,
		clients: make(map[string]*cpuClient)}
}

// bucket returns a full token bucket for a part of the processors.
func (l *CPULimiter) bucket(part float64) *rate.Limiter {
	filled := l.processors * part
	return rate.NewLimiter(rate.Limit(filled*float64(time.Second)), int(filled*float64(burst)))
}

// take takes processor time from a bucket, which may go into debt, by no more than longestDelay.
func take(b *rate.Limiter, d time.Duration, now time.Time) {
	for left := int(d); left > 0 && delay(b, now) <= longestDelay-burst; left -= b.Burst() {
		b.ReserveN(now, min(left, b.Burst()))
	}
}

// delay returns how long it takes until a bucket has no debt; nil has none.
func delay(b *rate.Limiter, now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	return time.Duration(max(-b.TokensAt(now), 0) / float64(b.Limit()) * float64(time.Second))
}

// Short reports whether processors are short while several clients are active.
func (l *CPULimiter) Short() bool { return l.limiting.Load() }

// Charge charges a client for work, by its estimated processor time. It returns how long the client
// must wait, and whether it is verified: if not, Verify is to be called at its first answer.
func (l *CPULimiter) Charge(of string, costs time.Duration, now time.Time) (wait time.Duration,
	verified bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clientLocked(of, now)
	l.lookLocked(now)
	if c.trial != nil {
		take(c.trial, costs, now)
	}
	switch {
	case l.share == 1:
		c.fair = nil
	case c.fair == nil:
		c.fair = l.bucket(1)
		fallthrough
	default:
		take(c.fair, time.Duration(float64(costs)/l.share), now)
	}
	return min(l.delayLocked(c, now), longestWait), c.trial == nil
}

// Penalize charges a client for so much more processor time, whether or not processors are short.
func (l *CPULimiter) Penalize(of string, d time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	take(l.clientLocked(of, now).penalties, d, now)
}

// Verify notes that a client has had an answer. Its debt from before is forgiven, except for
// penalties.
func (l *CPULimiter) Verify(of string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clientLocked(of, now).trial = nil
}

// Delay returns how long a client must wait by now, in one wait or several.
func (l *CPULimiter) Delay(of string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clients[of]; c != nil {
		return l.delayLocked(c, now)
	}
	return 0
}

func (l *CPULimiter) delayLocked(c *cpuClient, now time.Time) time.Duration {
	d := max(delay(c.penalties, now), delay(c.trial, now))
	if l.share < 1 {
		d = max(d, delay(c.fair, now))
	}
	return d
}

// clientLocked returns a client that works now, and adds it if need be.
func (l *CPULimiter) clientLocked(of string, now time.Time) *cpuClient {
	c := l.clients[of]
	if c == nil || now.Sub(c.last) > verifiedFor {
		if c == nil && len(l.clients) >= maxClients {
			for other := range l.clients { // an arbitrary one
				delete(l.clients, other)
				break
			}
		}
		c = &cpuClient{penalties: l.bucket(1), trial: l.bucket(1.0 / unverifiedPart)}
		l.clients[of] = c
	}
	c.last = now
	return c
}

// lookLocked checks, at most every lookEvery, whether processors are short.
func (l *CPULimiter) lookLocked(now time.Time) {
	since := now.Sub(l.looked)
	if since < lookEvery {
		return
	}
	l.looked = now
	short := l.short()
	switch {
	case (short || l.share < 1) && !l.severalLocked(now):
		l.share = 1
	case short:
		l.share, l.shortAt = max(l.share/2, leastShare), now
	case now.Sub(l.shortAt) > shareHolds:
		l.share = min(l.share*math.Exp2(float64(since)/float64(shareDoubles)), 1)
	}
	l.limiting.Store(l.share < 1)
}

// severalLocked reports whether several clients are active.
func (l *CPULimiter) severalLocked(now time.Time) bool {
	active := 0
	for _, c := range l.clients {
		if now.Sub(c.last) <= activeFor {
			if active++; active > 1 {
				return true
			}
		}
	}
	return false
}

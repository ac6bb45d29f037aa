package commitwait

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/alarm"
)

// Clocks say when every clock of the cluster has passed a timestamp. All queues of a node share
// them.
type Clocks struct {
	*hlc.Clock
	// AfterFunc is time.AfterFunc, or what stands for it.
	AfterFunc func(d time.Duration, f func()) alarm.Timer
	// Seconds observes for how long commits, and the reads that saw them, have waited.
	Seconds prometheus.Observer
}

// Passed says that every clock has passed a timestamp, or true time has, if that is what is known
// (hlc.Clock.WaitFloor).
func (c *Clocks) Passed(ts hlc.Timestamp) bool {
	earliest, _ := c.Bounds()
	return earliest > ts.Wall
}

// until is about how long it takes for all clocks to pass a timestamp.
func (c *Clocks) until(ts hlc.Timestamp) time.Duration {
	earliest, _ := c.Bounds()
	return max(time.Duration(ts.Wall-earliest), 0) + slack
}

const (
	// slack is waited for besides: timers measure by another clock.
	slack = time.Microsecond
	// shortest is how long a timer that rang too early runs at least.
	shortest = 100 * time.Microsecond
)

// Held is what waits in a queue. One of its methods is called, once, with no lock held.
type Held interface {
	// Release goes on: every clock has passed the timestamp.
	Release()
	// Refuse ends the wait, because the queue is closed.
	Refuse()
}

// Queue is what one replica, or one node, holds back. It has a lock of its own, which is held
// while timers are set. Safe for concurrent use.
type Queue struct {
	clocks *Clocks
	most   int
	// manual, if not nil, says that no timer runs: ReleasePassed is called instead.
	manual func() bool

	mu struct {
		sync.Mutex
		// waiting is nil if nothing has waited yet.
		waiting map[*wait]struct{}
		closed  bool
	}
}

// wait is one element of a queue.
type wait struct {
	held  Held
	until hlc.Timestamp
	since time.Time
	// timer is nil if none runs.
	timer alarm.Timer
}

// Init makes an empty queue that holds at most so many.
func (q *Queue) Init(clocks *Clocks, most int, manual func() bool) {
	q.clocks, q.most, q.manual = clocks, most, manual
}

// Hold holds something back until every clock has passed a timestamp. It returns false, and holds
// nothing, if the queue is full or closed.
func (q *Queue) Hold(until hlc.Timestamp, held Held) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed || len(q.mu.waiting) >= q.most {
		return false
	}
	if q.mu.waiting == nil {
		q.mu.waiting = make(map[*wait]struct{})
	}
	w := &wait{held: held, until: until, since: time.Now()}
	q.mu.waiting[w] = struct{}{}
	if q.manual == nil || !q.manual() {
		w.timer = q.clocks.AfterFunc(q.clocks.until(until), func() { q.ring(w) })
	}
	return true
}

// ring releases an element, if the time has come.
func (q *Queue) ring(w *wait) {
	q.mu.Lock()
	if _, still := q.mu.waiting[w]; !still {
		q.mu.Unlock()
		return
	}
	if !q.clocks.Passed(w.until) {
		// Clocks may be set back, and their error may grow.
		if w.timer != nil {
			w.timer.Reset(max(q.clocks.until(w.until), shortest))
		}
		q.mu.Unlock()
		return
	}
	delete(q.mu.waiting, w)
	q.mu.Unlock()
	q.clocks.Seconds.Observe(time.Since(w.since).Seconds())
	w.held.Release()
}

// ReleasePassed releases what need not wait any longer, as timers do.
func (q *Queue) ReleasePassed() {
	q.mu.Lock()
	all := make([]*wait, 0, len(q.mu.waiting))
	for w := range q.mu.waiting {
		all = append(all, w)
	}
	q.mu.Unlock()
	for _, w := range all {
		q.ring(w)
	}
}

// Len is how much is held back.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.waiting)
}

// Close refuses all that is held back, and whatever comes later.
func (q *Queue) Close() {
	q.mu.Lock()
	waiting := q.mu.waiting
	q.mu.waiting, q.mu.closed = nil, true
	for w := range waiting {
		if w.timer != nil {
			w.timer.Stop()
		}
	}
	q.mu.Unlock()
	for w := range waiting {
		w.held.Refuse()
	}
}

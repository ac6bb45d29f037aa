package commitwait

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/timer"
)

// Clocks tell when every clock of the cluster has passed a timestamp. All queues of a node share
// them.
type Clocks struct {
	*hlc.Clock
	// AfterFunc is time.AfterFunc, or a replacement in tests.
	AfterFunc func(d time.Duration, f func()) timer.Timer
	// Seconds observes how long commits, and reads that saw them, have waited.
	Seconds prometheus.Observer
}

// Passed reports that every clock has passed a timestamp; with hlc.KernelBound, that true time has
// passed it (hlc.Clock.WaitFloor).
func (c *Clocks) Passed(ts hlc.Timestamp) bool {
	earliest, _ := c.Bounds()
	return earliest > ts.Wall
}

// until estimates how long it takes for all clocks to pass a timestamp.
func (c *Clocks) until(ts hlc.Timestamp) time.Duration {
	earliest, _ := c.Bounds()
	return max(time.Duration(ts.Wall-earliest), 0) + slack
}

const (
	// slack is added to each wait, because timers use another clock.
	slack = time.Microsecond
	// shortest is the least duration of a timer after one that fired too early.
	shortest = 100 * time.Microsecond
)

// Held is an element of a queue. One of its methods is called, once, with no lock held.
type Held interface {
	// Release continues: every clock has passed the timestamp.
	Release()
	// Refuse ends the wait, because the queue is closed.
	Refuse()
}

// Queue holds back elements for one replica, or one node. Its lock is held while timers are set.
// Safe for concurrent use.
type Queue struct {
	clocks *Clocks
	most   int
	// manual, if not nil, reports that no timers run: ReleasePassed is called instead.
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
	timer timer.Timer
}

// Init makes an empty queue that holds at most most elements.
func (q *Queue) Init(clocks *Clocks, most int, manual func() bool) {
	q.clocks, q.most, q.manual = clocks, most, manual
}

// Hold holds an element back until every clock has passed a timestamp. It returns false, and holds
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

// ReleasePassed releases the elements whose time has come, as timers do.
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

// Len returns the number of elements that are held back.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.waiting)
}

// Close refuses all elements, and those that come later.
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

package alarm

import (
	"container/heap"
	"sync"
	"time"
)

// Timer is a function that is to be called later, as time.AfterFunc makes it: its Stop and Reset
// mean the same.
type Timer interface {
	// Stop reports whether the function was still to be called; now it is not.
	Stop() bool
	// Reset has it called when d has passed from now on, once more if it was. It reports what Stop
	// would have.
	Reset(d time.Duration) bool
}

// Plain is time.AfterFunc.
func Plain(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Alarms are timers that share a bell. Make them with New, and end them with Close. Safe for
// concurrent use.
type Alarms struct {
	bell bell
	// beside rings at the same times: a process that never runs out of work looks at its timers
	// often, and at the network seldom.
	beside *time.Timer
	// done is closed when the goroutine that listens to the bell has ended.
	done chan struct{}

	mu struct {
		sync.Mutex
		waiting queue
		// rings is when the bell rings next; the zero time if it does not.
		rings  time.Time
		closed bool
	}
}

// New starts them.
func New() *Alarms { return start(newBell()) }

func start(b bell) *Alarms {
	a := &Alarms{bell: b, done: make(chan struct{})}
	a.beside = time.AfterFunc(time.Hour, a.ring)
	a.beside.Stop()
	go a.listen()
	return a
}

// AfterFunc has f called, in a goroutine of its own, when d has passed. How many wait is for the
// callers to bound. After Close it is time.AfterFunc.
func (a *Alarms) AfterFunc(d time.Duration, f func()) Timer {
	t := &timer{alarms: a, f: f, place: nowhere}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(t, d)
	return t
}

// Close leaves what waits to the runtime's timers. Nothing is lost, and nothing is called early.
func (a *Alarms) Close() {
	a.bell.close()
	<-a.done
}

// listen rings until the bell is closed.
func (a *Alarms) listen() {
	defer close(a.done)
	for a.bell.wait() == nil {
		a.ring()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	a.beside.Stop()
	for _, t := range a.mu.waiting {
		t.place = nowhere
		t.plain = time.AfterFunc(time.Until(t.at), t.f)
	}
	a.mu.waiting = nil
}

// ring calls what is due.
func (a *Alarms) ring() {
	for _, f := range a.due() {
		go f()
	}
}

// due takes out what is due, and sets the bell for what comes next.
func (a *Alarms) due() (functions []func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.rings = time.Time{}
	now := time.Now()
	for len(a.mu.waiting) > 0 && !a.mu.waiting[0].at.After(now) {
		functions = append(functions, heap.Pop(&a.mu.waiting).(*timer).f)
	}
	a.setLocked()
	return functions
}

func (a *Alarms) addLocked(t *timer, d time.Duration) {
	if a.mu.closed {
		t.plain = time.AfterFunc(d, t.f)
		return
	}
	t.at = time.Now().Add(d)
	heap.Push(&a.mu.waiting, t)
	a.setLocked()
}

// setLocked sets the bell if it would ring too late.
func (a *Alarms) setLocked() {
	if len(a.mu.waiting) == 0 {
		a.beside.Stop()
		return
	}
	if first := a.mu.waiting[0].at; a.mu.rings.IsZero() || first.Before(a.mu.rings) {
		a.mu.rings = first
		d := max(time.Until(first), 1)
		a.bell.set(d)
		a.beside.Reset(d)
	}
}

// timer is one that waits, has been called, or was stopped.
type timer struct {
	alarms *Alarms
	f      func()
	// Guarded by the lock of the alarms.
	at    time.Time
	place int // in the queue
	// plain is the timer that has it since the alarms were closed.
	plain *time.Timer
}

// nowhere is the place of a timer that does not wait.
const nowhere = -1

// Stop implements Timer.
func (t *timer) Stop() bool {
	a := t.alarms
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.plain != nil {
		return t.plain.Stop()
	}
	return t.stopLocked()
}

func (t *timer) stopLocked() bool {
	waited := t.place != nowhere
	if waited {
		heap.Remove(&t.alarms.mu.waiting, t.place)
	}
	return waited
}

// Reset implements Timer.
func (t *timer) Reset(d time.Duration) bool {
	a := t.alarms
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.plain != nil {
		return t.plain.Reset(d)
	}
	waited := t.stopLocked()
	a.addLocked(t, d)
	return waited
}

// queue is a heap of timers, the first due on top.
type queue []*timer

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	t := x.(*timer)
	t.place = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.place = nowhere
	return t
}

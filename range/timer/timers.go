package timer

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

// Timers are timers that share a waker. Make them with New, and end them with Close. Safe for
// concurrent use.
type Timers struct {
	waker waker
	// beside fires at the same times: a process that never runs out of work looks at its timers
	// often, and at the network seldom.
	beside *time.Timer
	// done is closed when the goroutine that listens to the waker has ended.
	done chan struct{}

	mu struct {
		sync.Mutex
		waiting queue
		// fires is when the waker fires next; the zero time if it does not.
		fires  time.Time
		closed bool
	}
}

// New starts them.
func New() *Timers { return start(newWaker()) }

func start(b waker) *Timers {
	a := &Timers{waker: b, done: make(chan struct{})}
	a.beside = time.AfterFunc(time.Hour, a.fire)
	a.beside.Stop()
	go a.listen()
	return a
}

// AfterFunc has f called, in a goroutine of its own, when d has passed. How many wait is for the
// callers to bound. After Close it is time.AfterFunc.
func (a *Timers) AfterFunc(d time.Duration, f func()) Timer {
	t := &timer{timers: a, f: f, place: nowhere}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(t, d)
	return t
}

// Close leaves what waits to the runtime's timers. Nothing is lost, and nothing is called early.
func (a *Timers) Close() {
	a.waker.close()
	<-a.done
}

// listen calls fire until the waker is closed.
func (a *Timers) listen() {
	defer close(a.done)
	for a.waker.wait() == nil {
		a.fire()
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

// fire calls what is due.
func (a *Timers) fire() {
	for _, f := range a.due() {
		go f()
	}
}

// due takes out what is due, and sets the waker for what comes next.
func (a *Timers) due() (functions []func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.fires = time.Time{}
	now := time.Now()
	for len(a.mu.waiting) > 0 && !a.mu.waiting[0].at.After(now) {
		functions = append(functions, heap.Pop(&a.mu.waiting).(*timer).f)
	}
	a.setLocked()
	return functions
}

func (a *Timers) addLocked(t *timer, d time.Duration) {
	if a.mu.closed {
		t.plain = time.AfterFunc(d, t.f)
		return
	}
	t.at = time.Now().Add(d)
	heap.Push(&a.mu.waiting, t)
	a.setLocked()
}

// setLocked sets the waker if it would fire too late.
func (a *Timers) setLocked() {
	if len(a.mu.waiting) == 0 {
		a.beside.Stop()
		return
	}
	if first := a.mu.waiting[0].at; a.mu.fires.IsZero() || first.Before(a.mu.fires) {
		a.mu.fires = first
		d := max(time.Until(first), 1)
		a.waker.set(d)
		a.beside.Reset(d)
	}
}

// timer is one that waits, has been called, or was stopped.
type timer struct {
	timers *Timers
	f      func()
	// Guarded by the lock of the Timers.
	at    time.Time
	place int // in the queue
	// plain is the timer that has it since the Timers were closed.
	plain *time.Timer
}

// nowhere is the place of a timer that does not wait.
const nowhere = -1

// Stop implements Timer.
func (t *timer) Stop() bool {
	a := t.timers
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
		heap.Remove(&t.timers.mu.waiting, t.place)
	}
	return waited
}

// Reset implements Timer.
func (t *timer) Reset(d time.Duration) bool {
	a := t.timers
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

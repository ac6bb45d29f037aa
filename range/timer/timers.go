package timer

import (
	"container/heap"
	"sync"
	"time"
)

// Timer is a function that is to be called later, like that of time.AfterFunc: Stop and Reset mean
// the same.
type Timer interface {
	// Stop prevents the call, and reports whether the function was still to be called.
	Stop() bool
	// Reset has the function called when d has passed from now, again if it was called before. It
	// returns what Stop would have returned.
	Reset(d time.Duration) bool
}

// Plain is time.AfterFunc.
func Plain(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Timers is a set of timers that share a waker. Make it with New, and end it with Close. Safe for
// concurrent use.
type Timers struct {
	waker waker
	// beside fires at the same times, because a busy process checks its timers often, and the
	// network seldom.
	beside *time.Timer
	// done is closed when the goroutine that listens to the waker has ended.
	done chan struct{}

	mu struct {
		sync.Mutex
		waiting queue
		// fires is when the waker fires next; zero if it does not.
		fires  time.Time
		closed bool
	}
}

// New starts a Timers.
func New() *Timers { return start(newWaker()) }

func start(b waker) *Timers {
	a := &Timers{waker: b, done: make(chan struct{})}
	a.beside = time.AfterFunc(time.Hour, a.fire)
	a.beside.Stop()
	go a.listen()
	return a
}

// AfterFunc has f called, in a goroutine of its own, when d has passed. The callers bound the
// number of timers. After Close it is time.AfterFunc.
func (a *Timers) AfterFunc(d time.Duration, f func()) Timer {
	t := &timer{timers: a, f: f, place: nowhere}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(t, d)
	return t
}

// Close moves waiting timers to the runtime. None is lost, and none fires early.
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

// fire calls the functions that are due.
func (a *Timers) fire() {
	for _, f := range a.due() {
		go f()
	}
}

// due takes out the timers that are due, and sets the waker for the next one.
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

// timer is a timer that waits, has fired, or was stopped.
type timer struct {
	timers *Timers
	f      func()
	// Guarded by the lock of the Timers.
	at    time.Time
	place int // in the queue
	// plain is the runtime's timer that replaces this one after Close.
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

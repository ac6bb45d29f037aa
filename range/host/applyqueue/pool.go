package applyqueue

import (
	"slices"
	"sync"
	"time"
)

// Runner runs the tasks of one queue. T is a task, and S is scratch memory that a worker keeps from
// one run to the next.
type Runner[T, S any] interface {
	// RunTasks runs the first of the tasks, or several of the first as one, and returns how many.
	RunTasks(tasks []T, scratch *S) (n int)
	// DropTasks is given the tasks that were queued when the pool was stopped.
	DropTasks(tasks []T)
}

// Pool is a fixed number of workers.
type Pool[T, S any] struct {
	workers int
	// delay is how long delayed tasks wait.
	delay time.Duration

	mu      sync.Mutex
	wake    *sync.Cond
	queue   []*Queue[T, S]
	stopped bool
	// delayed holds the queues whose delayed tasks wait for the timer, and lazy those whose delay
	// is over. taken counts the queues taken from the first line since the last one from lazy.
	delayed, lazy []*Queue[T, S]
	timer         *time.Timer
	taken         int

	running sync.WaitGroup
}

// New makes a pool that does nothing before Start.
func New[T, S any](workers int, delay time.Duration) *Pool[T, S] {
	p := &Pool[T, S]{workers: workers, delay: delay}
	p.wake = sync.NewCond(&p.mu)
	return p
}

// Start starts the workers.
func (p *Pool[T, S]) Start() {
	for range p.workers {
		p.running.Add(1)
		go p.run()
	}
}

// Stop waits for the workers, and drops the tasks that are queued.
func (p *Pool[T, S]) Stop() {
	p.mu.Lock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.wake.Broadcast()
	p.running.Wait()
	p.mu.Lock()
	left := slices.Concat(p.queue, p.lazy, p.delayed)
	p.queue, p.lazy, p.delayed = nil, nil, nil
	p.mu.Unlock()
	for _, q := range left {
		q.runner.DropTasks(q.take())
	}
}

func (p *Pool[T, S]) run() {
	defer p.running.Done()
	var scratch S
	for {
		p.mu.Lock()
		for len(p.queue)+len(p.lazy) == 0 && !p.stopped {
			p.wake.Wait()
		}
		if p.stopped {
			p.mu.Unlock()
			return
		}
		q := p.takeLocked()
		p.mu.Unlock()
		if q != nil {
			q.run(&scratch)
		}
	}
}

func (p *Pool[T, S]) enqueue(q *Queue[T, S]) {
	p.mu.Lock()
	p.queue = append(p.queue, q)
	p.mu.Unlock()
	p.wake.Signal()
}

// enqueueDelayed adds a queue to those that the timer looks at.
func (p *Pool[T, S]) enqueueDelayed(q *Queue[T, S]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delayed = append(p.delayed, q)
	switch {
	case len(p.delayed) > 1 || p.stopped:
	case p.timer == nil:
		p.timer = time.AfterFunc(p.delay, p.sweep)
	default:
		p.timer.Reset(p.delay)
	}
}

// sweep moves the queues whose delay is over to the lazy line. The timer calls it.
func (p *Pool[T, S]) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return // Stop drops their tasks
	}
	for _, q := range p.delayed {
		if q.becomeLazy() {
			p.lazy = append(p.lazy, q)
		}
	}
	clear(p.delayed)
	p.delayed = p.delayed[:0]
	p.wake.Broadcast()
}

// lazyShare is how many queues are taken from the first line, while it is not empty, for one of the
// lazy line.
const lazyShare = 4

// takeLocked takes the next queue, from the first line or, in its turn, from the lazy line. It
// returns nil if the queue has moved from the lazy line to the first.
func (p *Pool[T, S]) takeLocked() *Queue[T, S] {
	p.taken++
	if len(p.queue) > 0 && (len(p.lazy) == 0 || p.taken%lazyShare != 0) {
		return first(&p.queue)
	}
	if q := first(&p.lazy); q.beginLazy() {
		return q
	}
	return nil
}

// first removes and returns the first queue.
func first[T, S any](queues *[]*Queue[T, S]) *Queue[T, S] {
	q := (*queues)[0]
	(*queues)[0] = nil
	*queues = (*queues)[1:]
	return q
}

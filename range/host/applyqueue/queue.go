package applyqueue

import "sync"

// MaxDelayedBytes bounds the delayed tasks of one queue, in bytes.
const MaxDelayedBytes = 64 << 10

// Queue holds the tasks of one group. It must not be copied after Init.
type Queue[T, S any] struct {
	pool   *Pool[T, S]
	runner Runner[T, S]

	mu    sync.Mutex
	tasks []T
	// running is set while a worker has the queue or the queue stands in one of the pool's lines.
	// Otherwise all its tasks are delayed.
	running bool
	// lazy is set while the queue stands in the lazy line.
	lazy bool
	// urgent is set if a task must not be delayed. delayedBytes is the size of the delayed tasks.
	// listed is set while the pool's timer will look at the queue.
	urgent       bool
	delayedBytes int
	listed       bool
}

// Init ties a zero Queue to its pool and its runner.
func (q *Queue[T, S]) Init(p *Pool[T, S], r Runner[T, S]) { q.pool, q.runner = p, r }

// Add appends a task that a request may wait for.
func (q *Queue[T, S]) Add(task T) {
	q.mu.Lock()
	q.tasks = append(q.tasks, task)
	q.urgent = true
	start := q.startLocked()
	q.mu.Unlock()
	if start {
		q.pool.enqueue(q)
	}
}

// AddDelayed appends a task of so many bytes for which no request waits.
func (q *Queue[T, S]) AddDelayed(task T, bytes int) {
	q.mu.Lock()
	q.tasks = append(q.tasks, task)
	q.delayedBytes += bytes
	start, list := false, false
	if q.delayedBytes > MaxDelayedBytes {
		start = q.startLocked()
	} else if !q.running {
		list, q.listed = !q.listed, true
	}
	q.mu.Unlock()
	switch {
	case start:
		q.pool.enqueue(q)
	case list:
		q.pool.enqueueDelayed(q)
	}
}

// Hurry ends the delay of the queue's tasks.
func (q *Queue[T, S]) Hurry() {
	q.mu.Lock()
	start := len(q.tasks) > 0 && q.startLocked()
	q.mu.Unlock()
	if start {
		q.pool.enqueue(q)
	}
}

// startLocked reports whether the caller must put the queue into the first line, and marks it so.
func (q *Queue[T, S]) startLocked() bool {
	start := !q.running || q.lazy
	q.running, q.lazy = true, false
	return start
}

// take takes out all tasks.
func (q *Queue[T, S]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	tasks := q.tasks
	q.tasks, q.delayedBytes, q.urgent = nil, 0, false
	return tasks
}

// run runs the tasks that are queued now. Tasks that come meanwhile go to the end of the pool's
// line, so that a busy group does not keep a worker from the others.
func (q *Queue[T, S]) run(scratch *S) {
	for tasks := q.take(); len(tasks) > 0; {
		tasks = tasks[q.runner.RunTasks(tasks, scratch):]
	}
	q.mu.Lock()
	more := q.urgent || q.delayedBytes > MaxDelayedBytes
	q.running = more
	list := len(q.tasks) > 0 && !more && !q.listed
	q.listed = q.listed || list
	q.mu.Unlock()
	switch {
	case more:
		q.pool.enqueue(q)
	case list:
		q.pool.enqueueDelayed(q)
	}
}

// becomeLazy is called when the queue's delay is over. It reports whether the caller must put the
// queue into the lazy line.
func (q *Queue[T, S]) becomeLazy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listed = false
	lazy := len(q.tasks) > 0 && !q.running
	if lazy {
		q.running, q.lazy = true, true
	}
	return lazy
}

// beginLazy takes the queue out of the lazy line, and reports whether it still stood there.
func (q *Queue[T, S]) beginLazy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lazy := q.lazy
	q.lazy = false
	return lazy
}

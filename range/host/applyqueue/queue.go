package applyqueue

import "sync"

// MaxDelayedBytes is how many bytes of one queue's tasks may wait that no request waits for.
const MaxDelayedBytes = 64 << 10

// Queue is the tasks of one group. It must not be copied after Init.
type Queue[T, S any] struct {
	pool   *Pool[T, S]
	runner Runner[T, S]

	mu    sync.Mutex
	tasks []T
	// running: a worker has the queue, or it stands in one of the pool's lines. Otherwise the
	// tasks, if there are any, are delayed.
	running bool
	// lazy: the queue stands in the line that no request waits for.
	lazy bool
	// urgent: there is a task that must not be delayed. delayedBytes counts the bytes of the others.
	// listed: the pool's timer will look at the queue.
	urgent       bool
	delayedBytes int
	listed       bool
}

// Init makes a zero Queue one of a pool.
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

// AddDelayed appends a task of so many bytes that no request waits for.
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

// Hurry has the pool run what is delayed.
func (q *Queue[T, S]) Hurry() {
	q.mu.Lock()
	start := len(q.tasks) > 0 && q.startLocked()
	q.mu.Unlock()
	if start {
		q.pool.enqueue(q)
	}
}

// startLocked says that the queue is to be put into the line that requests may wait for.
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

// run runs what is queued now. What comes meanwhile goes to the end of the pool's line, so that a
// busy group does not keep a worker from the others.
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

// becomeLazy says whether the queue is to be put into the line that no request waits for. Its delay
// is over.
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

// beginLazy says whether the queue still stands in the line that no request waits for. From now on
// it does not.
func (q *Queue[T, S]) beginLazy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lazy := q.lazy
	q.lazy = false
	return lazy
}

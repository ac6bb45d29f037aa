package applyqueue

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder notes what is run and dropped.
type recorder struct {
	mu            sync.Mutex
	busy          bool
	runs, dropped []int
	started       chan struct{}
	held          chan struct{}
}

func (r *recorder) RunTasks(tasks []int, scratch *int) int {
	r.mu.Lock()
	if r.busy {
		panic("two workers run tasks of one queue")
	}
	r.busy = true
	r.mu.Unlock()
	if r.held != nil {
		close(r.started)
		<-r.held
		r.held = nil
	}
	*scratch++
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	r.runs = append(r.runs, tasks[0])
	return 1
}

func (r *recorder) DropTasks(tasks []int) { r.dropped = append(r.dropped, tasks...) }

func (r *recorder) ran() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.runs)
}

// Tasks of a queue are run in their order. Delayed ones wait for the delay, or for a task behind
// them that a request may wait for.
func TestDelayedTasksWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New[int, int](2, time.Second)
		p.Start()
		defer p.Stop()
		r := &recorder{}
		var q Queue[int, int]
		q.Init(p, r)
		expect := func(want ...int) {
			t.Helper()
			synctest.Wait()
			if got := r.ran(); !slices.Equal(got, want) {
				t.Fatalf("%v were run, want %v", got, want)
			}
		}
		q.AddDelayed(1, 10)
		expect()
		time.Sleep(time.Second)
		expect(1)
		q.AddDelayed(2, 10)
		q.Add(3)
		expect(1, 2, 3)
		q.AddDelayed(4, MaxDelayedBytes+1)
		expect(1, 2, 3, 4)
		q.AddDelayed(5, 10)
		q.Hurry()
		expect(1, 2, 3, 4, 5)
	})
}

// What was queued when the pool stops is dropped, and what runs then is waited for.
func TestStopDropsWhatIsQueued(t *testing.T) {
	p := New[int, int](1, time.Hour)
	p.Start()
	r := &recorder{started: make(chan struct{}), held: make(chan struct{})}
	idle := &recorder{}
	var q, other Queue[int, int]
	q.Init(p, r)
	other.Init(p, idle)
	q.Add(1)
	<-r.started
	q.Add(2)
	other.AddDelayed(3, 10)
	p.mu.Lock()
	p.stopped = true // what Stop does first
	p.mu.Unlock()
	close(r.held)
	p.Stop()
	if !slices.Equal(r.runs, []int{1}) || !slices.Equal(r.dropped, []int{2}) ||
		!slices.Equal(idle.dropped, []int{3}) {
		t.Errorf("%v were run, %v and %v dropped", r.runs, r.dropped, idle.dropped)
	}
}

// Of queues that requests wait for and queues that no request waits for, those come first, and
// these too.
func TestOrderOfTheLines(t *testing.T) {
	p := New[int, int](0, time.Second)
	numbers := map[*Queue[int, int]]int{}
	for i := range 10 {
		q := &Queue[int, int]{}
		numbers[q] = 100 + i
		p.queue = append(p.queue, q)
	}
	for i := range 3 {
		q := &Queue[int, int]{running: true, lazy: true}
		numbers[q] = 200 + i
		p.lazy = append(p.lazy, q)
	}
	var got []int
	for len(p.queue)+len(p.lazy) > 0 {
		got = append(got, numbers[p.takeLocked()])
	}
	want := []int{100, 101, 102, 200, 103, 104, 105, 201, 106, 107, 108, 202, 109}
	if !slices.Equal(got, want) {
		t.Errorf("queues are taken as %v, want %v", got, want)
	}
}

// A queue that requests come to wait for while it is in the line that no request waits for changes
// over to the other one.
func TestQueueLeavesLazyLine(t *testing.T) {
	p := New[int, int](0, time.Hour)
	var busy, lags, leads Queue[int, int]
	for _, q := range []*Queue[int, int]{&busy, &lags, &leads} {
		q.Init(p, nil)
	}
	busy.Add(1)
	lags.AddDelayed(1, 1)
	leads.AddDelayed(1, 1)
	p.sweep()
	leads.Add(1)
	leads.Add(1) // it is there once
	var got []*Queue[int, int]
	for len(p.queue)+len(p.lazy) > 0 {
		if q := p.takeLocked(); q != nil {
			got = append(got, q)
		}
	}
	if want := []*Queue[int, int]{&busy, &leads, &lags}; !slices.Equal(got, want) {
		t.Errorf("%d queues are taken, in another order", len(got))
	}
}

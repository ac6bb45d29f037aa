package workloads

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// closePatience is how long closing a window may take at a time; it is tried again.
const closePatience = 20 * time.Second

// windows rotate what a workload uses, so that its memory is bounded however long the run: each window lives for some time,
// and is then checked and forgotten by one of the clients. T is what a window holds.
type windows[T any] struct {
	// age is how long a window is used; fresh makes the content of one.
	age   time.Duration
	fresh func(number int64) T

	mu struct {
		sync.Mutex
		open map[int64]*window[T]
	}
}

// window is one of them. Clients are in it between enter and leave.
type window[T any] struct {
	number int64
	state  T
	inside int // guarded by the mutex of windows
}

// enter lets a client use the window of this moment of the run.
func (w *windows[T]) enter(now time.Duration) *window[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := int64(now / w.age)
	x := w.mu.open[number]
	if x == nil {
		if w.mu.open == nil {
			w.mu.open = make(map[int64]*window[T])
		}
		x = &window[T]{number: number, state: w.fresh(number)}
		w.mu.open[number] = x
	}
	x.inside++
	return x
}

// leave ends a client's use.
func (w *windows[T]) leave(x *window[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.inside--
}

// due takes out a window that is over and has nobody in it, nil if there is none. The caller closes it, or puts it back.
func (w *windows[T]) due(now time.Duration) *window[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	current := int64(now / w.age)
	for number, x := range w.mu.open {
		if number < current && x.inside == 0 {
			delete(w.mu.open, number)
			return x
		}
	}
	return nil
}

// closeDue closes a window that is over, if there is one, within some time. It returns false if that failed; the window is then
// tried again, and the client should not begin anything new meanwhile, so that open windows do not gather.
func (w *windows[T]) closeDue(ctx context.Context, run *Run, closing func(ctx context.Context, state T) error) bool {
	x := w.due(run.Elapsed())
	if x == nil {
		return true
	}
	inner, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	err := closing(inner, x.state)
	run.Count("window", err)
	if err == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.open[x.number] = x
	return false
}

// closeAll closes all windows at the end, when nobody is in any of them. An error is what closing could not do.
func (w *windows[T]) closeAll(ctx context.Context, closing func(ctx context.Context, state T) error) error {
	w.mu.Lock()
	open := w.mu.open
	w.mu.open = nil
	w.mu.Unlock()
	var errs []error
	for _, number := range slices.Sorted(maps.Keys(open)) {
		errs = append(errs, closing(ctx, open[number].state))
	}
	return errors.Join(errs...)
}

// list is the content of all open windows.
func (w *windows[T]) list() []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]T, 0, len(w.mu.open))
	for _, x := range w.mu.open {
		all = append(all, x.state)
	}
	return all
}

package driver

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

// Windows rotate what a workload uses, so that its memory is bounded however long the run: each
// window lives for some time, and is then checked and forgotten by one of the clients. T is what a
// window holds.
type Windows[T any] struct {
	// Age is how long a window is used; Fresh makes the content of one.
	Age   time.Duration
	Fresh func(number int64) T

	mu struct {
		sync.Mutex
		open map[int64]*Window[T]
	}
}

// Window is one of them. Clients are in it between Enter and Leave.
type Window[T any] struct {
	Number int64
	State  T
	inside int // guarded by the mutex of Windows
}

// Enter lets a client use the window of this moment of the run.
func (w *Windows[T]) Enter(now time.Duration) *Window[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := int64(now / w.Age)
	x := w.mu.open[number]
	if x == nil {
		if w.mu.open == nil {
			w.mu.open = make(map[int64]*Window[T])
		}
		x = &Window[T]{Number: number, State: w.Fresh(number)}
		w.mu.open[number] = x
	}
	x.inside++
	return x
}

// Leave ends a client's use.
func (w *Windows[T]) Leave(x *Window[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.inside--
}

// due takes out a window that is over and has no client in it, nil if there is none. The caller
// closes it, or puts it back.
func (w *Windows[T]) due(now time.Duration) *Window[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	current := int64(now / w.Age)
	for number, x := range w.mu.open {
		if number < current && x.inside == 0 {
			delete(w.mu.open, number)
			return x
		}
	}
	return nil
}

// CloseDue closes a window that is over, if there is one, within some time. It returns false if
// that failed; the window is then tried again, and the client should not begin anything new
// meanwhile, so that open windows do not gather.
func (w *Windows[T]) CloseDue(ctx context.Context, run *Run, closing func(ctx context.Context,
	state T) error) bool {
	x := w.due(run.Elapsed())
	if x == nil {
		return true
	}
	inner, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	err := closing(inner, x.State)
	run.Count("window", err)
	if err == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.open[x.Number] = x
	return false
}

// CloseAll closes all windows at the end, when no client is in any of them. An error is what
// closing could not do.
func (w *Windows[T]) CloseAll(ctx context.Context, closing func(ctx context.Context,
	state T) error) error {
	w.mu.Lock()
	open := w.mu.open
	w.mu.open = nil
	w.mu.Unlock()
	var errs []error
	for _, number := range slices.Sorted(maps.Keys(open)) {
		errs = append(errs, closing(ctx, open[number].State))
	}
	return errors.Join(errs...)
}

// List is the content of all open windows.
func (w *Windows[T]) List() []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]T, 0, len(w.mu.open))
	for _, x := range w.mu.open {
		all = append(all, x.State)
	}
	return all
}

package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// closePatience bounds one attempt to close a window. A failed attempt is repeated.
const closePatience = 20 * time.Second

// Windows rotates the data that a workload uses, so that memory is bounded however long the run is.
// Each window is used for some time, and is then checked and dropped by one of the clients. T is
// the type of a window's data.
type Windows[T any] struct {
	// Age is the time for which a window is used. Fresh makes the data of a window.
	Age   time.Duration
	Fresh func(number int64) T

	mu struct {
		sync.Mutex
		open map[int64]*Window[T]
	}
}

// Window is one window. A client is inside between Enter and Leave.
type Window[T any] struct {
	Number int64
	State  T
	inside int // guarded by the mutex of Windows
}

// Enter lets a client use the window for this time of the run.
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

// Leave ends a client's use of a window.
func (w *Windows[T]) Leave(x *Window[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.inside--
}

// due removes and returns a window that is over and has no client in it. It returns nil if there is
// no such window. The caller closes the window, or puts it back.
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

// CloseDue closes a window that is over, if there is one, within a time limit. It returns false if
// the attempt failed. The attempt is then repeated. Meanwhile the client should not begin anything
// new, so that the number of open windows stays small.
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

// CloseAll closes all windows at the end, when no client is in any window. Its error describes the
// failed closings.
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

// List returns the data of all open windows.
func (w *Windows[T]) List() []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]T, 0, len(w.mu.open))
	for _, x := range w.mu.open {
		all = append(all, x.State)
	}
	return all
}

package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// diskPatience is how long the reconciler waits for what it writes, before it says that the log
// hangs, and tries again. A batch of removals settles for up to settleTimeout.
const diskPatience = 30 * time.Second

// errLogHangs: what was begun is still under way, and may still succeed.
var errLogHangs = errors.New("the log has not ended a write for a long time: its disk stalls, or " +
	"is full")

// diskWork is what the reconciler has on a goroutine of its own: a disk may take a write and not
// end it for hours, and the reconciler is to say so and to end when the node does.
//
// INVARIANT: there is one piece of it at a time. What was given up is waited for before the next
// begins, so that the two never meet; and each piece can be done again.
type diskWork struct {
	tasks *sync.WaitGroup
	// hangs counts the pieces that were given up.
	hangs prometheus.Counter
	// running is closed when the piece that was given up has ended; nil if there is none.
	running chan struct{}
}

// do has a piece of work done; errLogHangs, or the context's error, if that is not over in time.
func (w *diskWork) do(ctx context.Context, piece func() error) error {
	patience := time.NewTimer(diskPatience)
	defer patience.Stop()
	if err := w.wait(ctx, patience); err != nil {
		return err
	}
	var result error
	done := make(chan struct{})
	w.running = done
	// Close waits for it: the databases must be there until it has ended.
	w.tasks.Go(func() {
		defer close(done)
		result = piece()
	})
	if err := w.wait(ctx, patience); err != nil {
		return err
	}
	return result
}

// wait waits for what is running.
func (w *diskWork) wait(ctx context.Context, patience *time.Timer) error {
	if w.running == nil {
		return nil
	}
	select {
	case <-w.running:
		w.running = nil
		return nil
	case <-patience.C:
		w.hangs.Inc()
		return errLogHangs
	case <-ctx.Done():
		return ctx.Err()
	}
}

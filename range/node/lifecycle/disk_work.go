package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// diskPatience is how long the reconciler waits for a write before it reports that the log hangs,
// and tries again. A batch of removals settles for up to settleTimeout.
const diskPatience = 30 * time.Second

// errLogHangs: the write is still under way, and may still succeed.
var errLogHangs = errors.New("the log has not ended a write for a long time: its disk stalls, or " +
	"is full")

// diskWork runs the reconciler's disk work on a goroutine of its own: a disk may take a write and
// not complete it for hours; the reconciler must report that, and end when the node does.
//
// INVARIANT: there is one piece of work at a time. A piece that was given up is waited for before
// the next begins, so that the two never meet; and each piece can be repeated.
type diskWork struct {
	tasks *sync.WaitGroup
	// hangs counts the pieces that were given up.
	hangs prometheus.Counter
	// running is closed when the piece that was given up has ended; nil if there is none.
	running chan struct{}
}

// do runs a piece of work; it returns errLogHangs, or the context's error, if it does not end in
// time.
func (w *diskWork) do(ctx context.Context, piece func() error) error {
	patience := time.NewTimer(diskPatience)
	defer patience.Stop()
	if err := w.wait(ctx, patience); err != nil {
		return err
	}
	var result error
	done := make(chan struct{})
	w.running = done
	// Close waits for it: the databases must stay open until it has ended.
	w.tasks.Go(func() {
		defer close(done)
		result = piece()
	})
	if err := w.wait(ctx, patience); err != nil {
		return err
	}
	return result
}

// wait waits for the piece that is running.
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

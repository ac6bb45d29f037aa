package feed

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// A feed with a name begins at the position that is recorded for the name, and advances that
// position. A progress counts as taken when the application's loop asks for the next change.
//
// The position is recorded in the background, every consumerEvery at most, and when the loop ends.
// So an unreachable core delays no feed, and a recorded position is at most too low. The end of the
// loop does not cancel a running record, whose position may be the last.

// consumerEvery is the least time between two records of a position.
const consumerEvery = 5 * time.Second

const (
	// recordTimeout bounds one record of a position.
	recordTimeout = 5 * time.Second
	// lastRecord bounds, at the end of a loop, all attempts to record the last position;
	// recordPause is the pause between two attempts.
	lastRecord  = 5 * time.Second
	recordPause = 100 * time.Millisecond
)

// Recorder records the positions of a feed with a name.
type Recorder struct {
	// set records a position.
	set    func(context.Context, hlc.Timestamp) error
	failed func(error)
	// final reports whether an error of set is permanent.
	final func(error) bool
	// taken holds the last position that is not recorded yet.
	taken chan hlc.Timestamp
	ended chan struct{}
	// cancel cancels the running record.
	cancel context.CancelFunc
}

// Record begins to record positions with set, until Stop. loop is the context of the feed's loop.
// failed is called with temporary errors; end is called with an error for which final returns true,
// and has to end the feed.
func Record(loop context.Context, set func(context.Context, hlc.Timestamp) error,
	final func(error) bool, failed, end func(error)) *Recorder {
	ctx, cancel := context.WithCancel(context.WithoutCancel(loop))
	c := &Recorder{set: set, failed: failed, final: final, taken: make(chan hlc.Timestamp, 1),
		ended: make(chan struct{}), cancel: cancel}
	go func() { // until Stop
		defer close(c.ended)
		if err := c.run(ctx, loop); err != nil {
			end(err)
		}
	}()
	return c
}

// run records positions until Stop. It returns only permanent errors.
func (c *Recorder) run(ctx, loop context.Context) error {
	var left hlc.Timestamp // the position that could not be recorded
	for at := range c.taken {
		recorded, err := c.record(ctx, at)
		if err != nil {
			return err
		}
		if left = at; recorded {
			left = hlc.Timestamp{}
		}
		_ = backoff.Sleep(loop, consumerEvery)
	}
	for !left.IsZero() && ctx.Err() == nil {
		recorded, err := c.record(ctx, left)
		if recorded || err != nil {
			return err
		}
		_ = backoff.Sleep(ctx, recordPause)
	}
	return nil
}

// Took schedules a position for recording, in place of a position that still waits.
func (c *Recorder) Took(at hlc.Timestamp) {
	select {
	case <-c.taken:
	default:
	}
	c.taken <- at // never blocks: only this goroutine sends
}

// record records a position. It returns false if the position has to be tried again, and only
// permanent errors.
func (c *Recorder) record(ctx context.Context, at hlc.Timestamp) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err := c.set(ctx, at)
	switch {
	case err == nil:
		return true, nil
	case c.final(err):
		return false, err
	}
	c.failed(err)
	return false, nil
}

// Stop records the last position, and returns when the Recorder has ended. The loop's context must
// have ended.
func (c *Recorder) Stop() {
	late := time.AfterFunc(lastRecord, c.cancel)
	defer late.Stop()
	close(c.taken)
	<-c.ended
	c.cancel()
}

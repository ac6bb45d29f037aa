package kv

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// The latest possible moment.
//
// A reader that does not know what it will read, or cannot ask for it, takes a moment that is late
// enough for all keys of the cluster. Everything that was acknowledged before lies at or below
// any node's physical clock at that time plus twice hlc.Clock.MaxAhead (the invariants of package
// hlc), which is twice what servers tell clients as the maximum clock offset
// (Client.maxClockOffset): the configured bound; twice the configured bound with
// --kernel-clock-bound, whose commits that wait are ahead of the clocks by the bound. Commit wait
// moves no timestamp above that: a commit is acknowledged after the clocks have passed it. A node's
// answer to "what time is it" is at or above its physical clock. So L = that answer + twice the
// maximum clock offset is late enough, whichever node answers, if it is asked after the reader
// began.
//
// A read at L before its time would push the clocks: a server takes a timestamp in that is up to
// one MaxAhead ahead of its own. So the reader waits until a clock shows L. A server whose clock is
// behind that one by no more than the bound takes L in as it takes in any timestamp of its peer.
// Then the read is exact: nothing is uncertain, however long it takes.

// lateWait is about how long it takes until the latest possible moment can be read.
func (c *Client) lateWait() time.Duration { return 2 * c.maxClockOffset() }

// lateMoment finds a moment at or above everything that was acknowledged before the call, and
// returns when a clock shows it.
func (c *Client) lateMoment(ctx context.Context) (Timestamp, error) {
	now, err := c.askClock(ctx)
	if err != nil {
		return Timestamp{}, err
	}
	c.sender.Waited()
	late := now.Add(c.lateWait())
	for now.Less(late) {
		if err := c.pause(ctx, max(time.Duration(late.Wall-now.Wall), askPause)); err != nil {
			return Timestamp{}, err
		}
		if now, err = c.askClock(ctx); err != nil {
			return Timestamp{}, err
		}
	}
	return hlc.Max(late, c.sender.Session()), nil
}

// askClock asks the cluster for its time, until a node answers.
func (c *Client) askClock(ctx context.Context) (Timestamp, error) {
	for {
		if now, ok := c.sender.AskClock(ctx, askWait); ok {
			return now, nil
		}
		if err := c.pause(ctx, askPause); err != nil {
			return Timestamp{}, err
		}
	}
}

package conn

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// The latest possible timestamp.
//
// A reader that does not know what it will read, or cannot ask for it, takes a timestamp that is
// late enough for all keys of the cluster. Everything that was acknowledged before lies at or below
// any node's physical clock at that time plus twice hlc.Clock.MaxAhead (the invariants of package
// hlc), which is twice the maximum clock offset that servers report to clients
// (Conn.MaxClockOffset): the configured bound; or twice the configured bound with
// --kernel-clock-bound, whose commits that wait are ahead of the clocks by the bound. Commit wait
// moves no timestamp above that: a commit is acknowledged after the clocks have passed it. A node
// that is asked for the time answers with a timestamp at or above its physical clock. So L = that
// answer + twice the maximum clock offset is late enough, whichever node answers, if it is asked
// after the reader began.
//
// A read at L before its time would push the clocks: a server accepts a timestamp that is up to one
// MaxAhead ahead of its own clock. So the reader waits until a clock shows L. A server whose clock
// is behind that clock by no more than the bound accepts L like any timestamp of its peer. Then the
// read is exact: nothing is uncertain, however long it takes.

const (
	// maxShort is the most by which an estimate of the time may be too low. A client whose estimate
	// is worse, because it was idle, asks a node.
	maxShort = 20 * time.Millisecond
	// askWait bounds the wait for a node's clock; askPause is the pause before the next try.
	askWait  = 300 * time.Millisecond
	askPause = 20 * time.Millisecond
)

// MaxClockOffset returns how far the clocks of two nodes may differ.
func (c *Conn) MaxClockOffset() time.Duration {
	said := c.Sender.Clock.MaxOffset()
	if said == 0 {
		said = c.cfg.DefaultClockOffset
	}
	return max(said, c.cfg.MaxClockOffset)
}

// AskNow asks nodes for the cluster's time until a node answers. The result is at or above every
// timestamp that this client has seen.
func (c *Conn) AskNow(ctx context.Context) (hlc.Timestamp, error) {
	return c.askUntil(ctx, c.Sender.AskClocks)
}

// askClock asks the cluster for its time, until a node answers.
func (c *Conn) askClock(ctx context.Context) (hlc.Timestamp, error) {
	return c.askUntil(ctx, c.Sender.AskClock)
}

func (c *Conn) askUntil(ctx context.Context,
	ask func(context.Context, time.Duration) (hlc.Timestamp, bool)) (hlc.Timestamp, error) {
	for {
		if now, ok := ask(ctx, askWait); ok {
			return now, nil
		}
		if err := c.Pause(ctx, askPause); err != nil {
			return hlc.Timestamp{}, err
		}
	}
}

// Estimate returns an estimate of the cluster's time: a node's clock is at or above at, and was at
// most latest when it was read. If the known estimate is too inexact, Estimate asks a node.
func (c *Conn) Estimate(ctx context.Context) (at, latest hlc.Timestamp, err error) {
	at, latest, short, ok := c.Sender.Clock.Estimate()
	if ok && short <= maxShort {
		return at, latest.Add(short), nil
	}
	at, err = c.AskNow(ctx)
	return at, at, err
}

// Clocks returns bounds of the cluster's time: some node's clock is at or above earliest, and
// everything acknowledged until now is at or below latest.
func (c *Conn) Clocks(ctx context.Context) (earliest, latest hlc.Timestamp, err error) {
	earliest, latest, ok := c.knownClocks()
	if ok {
		return earliest, latest, nil
	}
	asked := time.Now()
	now, err := c.askClock(ctx)
	return now, now.Add(time.Since(asked) + 2*c.MaxClockOffset()), err
}

// knownClocks is Clocks without a request; ok is false if the time is unknown.
func (c *Conn) knownClocks() (earliest, latest hlc.Timestamp, ok bool) {
	earliest, latest, short, ok := c.Sender.Clock.Estimate()
	if !ok || short > maxShort {
		return earliest, latest, false
	}
	return earliest, latest.Add(short + 2*c.MaxClockOffset()), true
}

// Age returns the greatest possible age of a timestamp; negative if it is unknown.
func (c *Conn) Age(at hlc.Timestamp) time.Duration {
	_, latest, ok := c.knownClocks()
	if !ok || at.IsZero() {
		return -1
	}
	return max(0, time.Duration(latest.Wall-at.Wall))
}

// LateWait estimates the wait of LateTimestamp.
func (c *Conn) LateWait() time.Duration { return 2 * c.MaxClockOffset() }

// LateTimestamp returns a timestamp at or above everything that was acknowledged before the call,
// once a clock shows it.
func (c *Conn) LateTimestamp(ctx context.Context) (hlc.Timestamp, error) {
	now, err := c.askClock(ctx)
	if err != nil {
		return hlc.Timestamp{}, err
	}
	c.Sender.Waited()
	late := now.Add(c.LateWait())
	for now.Less(late) {
		if err := c.Pause(ctx, max(time.Duration(late.Wall-now.Wall), askPause)); err != nil {
			return hlc.Timestamp{}, err
		}
		if now, err = c.askClock(ctx); err != nil {
			return hlc.Timestamp{}, err
		}
	}
	return hlc.Max(late, c.Sender.Clock.Session()), nil
}

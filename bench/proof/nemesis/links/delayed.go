package links

import (
	"context"
	"math/rand/v2"
	"time"
)

// lineLength bounds what is on its way over one slow link; more is lost, or waits.
const lineLength = 4096

// delayed is something on its way that may be delivered at a time.
type delayed struct {
	due  time.Time
	data []byte
}

// shortDelay is what timers are too coarse for: those of a process that has nothing else to do are
// up to a millisecond late.
const shortDelay = 2 * time.Millisecond

// line delays what goes over one link, in order.
type line struct {
	queue chan delayed
	// last is when the latest has its turn. Of the goroutine that puts in.
	last time.Time
}

func newLine() *line { return &line{queue: make(chan delayed, lineLength)} }

// due is when something sent now arrives: never before what was sent before it.
func (l *line) due(now time.Time, s Shape) time.Time {
	due := now.Add(s.Delay)
	if s.Jitter > 0 {
		due = due.Add(rand.N(s.Jitter))
	}
	if due.Before(l.last) {
		due = l.last
	}
	l.last = due
	return due
}

// offer puts something on its way, and says false if the line is full. It keeps data.
func (l *line) offer(s Shape, data []byte) bool {
	select {
	case l.queue <- delayed{l.due(time.Now(), s), data}:
		return true
	default:
		return false
	}
}

// deliver hands over what has arrived until ctx ends or deliver fails.
func (l *line) deliver(ctx context.Context, deliver func([]byte) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var alarm alarm
	defer alarm.close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d := <-l.queue:
			if rest := time.Until(d.due); rest >= shortDelay {
				timer.Reset(rest)
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-timer.C:
				}
			} else if rest > 0 {
				alarm.wait(rest)
			}
			if err := deliver(d.data); err != nil {
				return err
			}
		}
	}
}

package links

import (
	"context"
	"math/rand/v2"
	"time"
)

// lineLength bounds the packets, or pieces, that are under way on one slow link. Beyond it packets
// are lost, and pieces wait.
const lineLength = 4096

// delayed is a packet, or a piece of a stream, with the time of its delivery.
type delayed struct {
	due  time.Time
	data []byte
}

// shortDelay is the delay below which Go's timers are not precise enough: in an idle process, they
// are up to a millisecond late.
const shortDelay = 2 * time.Millisecond

// line delays the data of one link, and keeps the order.
type line struct {
	queue chan delayed
	// last is the time of the latest delivery. Only the goroutine that offers data uses it.
	last time.Time
}

func newLine() *line { return &line{queue: make(chan delayed, lineLength)} }

// due returns the delivery time of data that is sent now. The time is never before the delivery
// time of earlier data.
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

// offer adds data to the line. It returns false if the line is full. The line keeps the slice.
func (l *line) offer(s Shape, data []byte) bool {
	select {
	case l.queue <- delayed{l.due(time.Now(), s), data}:
		return true
	default:
		return false
	}
}

// deliver calls the function deliver with the data whose time has come, until ctx ends or the
// function fails.
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

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

const (
	// MaxLargeAnswers is the default of Memory.LargeAnswers: how many large answers callers hold at a
	// time. largeAnswerWait is for how long another one waits.
	MaxLargeAnswers = 4
	largeAnswerWait = 5 * time.Second
)

// largeAnswers bounds the memory that readings without the log take: those whose answers are large
// need one of its slots.
type largeAnswers struct {
	slots chan struct{}
	wait  time.Duration
}

func newLargeAnswers(n int) largeAnswers {
	return largeAnswers{make(chan struct{}, n), largeAnswerWait}
}

// take waits for a slot, for a limited time.
func (l *largeAnswers) take(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(l.wait)
	defer timer.Stop()
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%w: %d answers of more than %d bytes are being read; ask later, or for "+
			"less at a time", command.ErrOverloaded, cap(l.slots), tables.LargeAnswerBytes)
	}
}

func (l *largeAnswers) giveBack() { <-l.slots }

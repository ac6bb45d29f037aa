package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/fairshare"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// Memory has the bounds of a store that are sizes of memory, in bytes. Zero fields take the
// defaults.
type Memory struct {
	// WatchQueues bounds the events that wait for watchers (default 256 MiB), WatchRecent the newest
	// events that are kept for all watchers (default 8 MiB).
	WatchQueues, WatchRecent int
	// Newest bounds the newest versions of keys that are kept, and which keys there are. Default 64
	// MiB.
	Newest int
	// LargestAnswer is how large the keys and values may be that one reading without the log answers
	// with, default MaxAnswerBytes. LargeAnswers is how many answers of more than LargeAnswerBytes
	// callers hold at a time, default MaxLargeAnswers.
	LargestAnswer, LargeAnswers int
}

func (m *Memory) ensureDefaults() {
	limits := watch.DefaultLimits()
	setDefault(&m.WatchQueues, limits.QueueBudget)
	setDefault(&m.WatchRecent, limits.RecentBytes)
	setDefault(&m.Newest, newest.DefaultBytes)
	setDefault(&m.LargestAnswer, tables.MaxAnswerBytes)
	setDefault(&m.LargeAnswers, MaxLargeAnswers)
}

func setDefault(field *int, value int) {
	if *field <= 0 {
		*field = value
	}
}

func (c *Config) watchLimits() *watch.Limits {
	if c.watch != nil {
		return c.watch
	}
	limits := watch.DefaultLimits()
	limits.QueueBudget, limits.RecentBytes = c.Memory.WatchQueues, c.Memory.WatchRecent
	return limits
}

func (c *Config) newestLimits() *newest.Limits {
	if c.newest != nil {
		return c.newest
	}
	return newest.LimitsFor(c.Memory.Newest)
}

const (
	// MaxLargeAnswers is the default of Memory.LargeAnswers. largeAnswerWait is for how long another
	// large answer waits.
	MaxLargeAnswers = 4
	largeAnswerWait = 5 * time.Second
)

// largeAnswers bounds the memory that readings without the log take: how many large answers callers
// hold at a time.
type largeAnswers struct {
	held *fairshare.Share
	wait time.Duration
}

func newLargeAnswers(n int) largeAnswers {
	return largeAnswers{fairshare.New(fairshare.Limits{Calls: int64(n)}), largeAnswerWait}
}

// take waits until another large answer may be held, for a limited time.
func (l *largeAnswers) take(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	err := l.held.Enter(limited, "", 0)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	n, _ := l.held.Held()
	return fmt.Errorf("%w: %d answers of more than %d bytes are being read; ask later, or for less at "+
		"a time", command.ErrOverloaded, n, tables.LargeAnswerBytes)
}

func (l *largeAnswers) giveBack() { l.held.Leave(0) }

package store

import (
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/reading"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// Memory bounds the memory of a store, in bytes. Zero fields take the defaults.
type Memory struct {
	// WatchQueues bounds the events that wait for watchers (default 256 MiB), WatchRecent bounds
	// the newest events, which all watchers share (default 8 MiB).
	WatchQueues, WatchRecent int
	// Newest bounds the cache of the newest versions and of which keys exist. Default 64 MiB.
	Newest int
	// LargestAnswer bounds the keys and values in one answer of a read without the log (default
	// MaxAnswerBytes). LargeAnswers bounds the sum of the answers above LargeAnswerBytes that
	// callers hold (default MaxLargeAnswers).
	LargestAnswer, LargeAnswers int
}

func (m *Memory) ensureDefaults() {
	limits := watch.DefaultLimits()
	setDefault(&m.WatchQueues, limits.QueueBudget)
	setDefault(&m.WatchRecent, limits.RecentBytes)
	setDefault(&m.Newest, newest.DefaultBytes)
	setDefault(&m.LargestAnswer, tables.MaxAnswerBytes)
	setDefault(&m.LargeAnswers, reading.MaxLargeAnswers)
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

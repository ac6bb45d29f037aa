package sim

import (
	"context"
	"log/slog"
	"sync"
)

// repeatedMerges counts how often a server has applied a merge again, because the server lost its
// power before the state was durable. It reads the servers' logs.
type repeatedMerges struct {
	mu       sync.Mutex
	applied  map[appliedMerge]bool
	repeated int
}

// appliedMerge is a merge that a server has applied: a partition and the neighbour that it
// consumed.
type appliedMerge struct {
	server    int
	neighbour uint64
}

func newRepeatedMerges() *repeatedMerges {
	return &repeatedMerges{applied: make(map[appliedMerge]bool)}
}

func (m *repeatedMerges) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.repeated
}

// logger returns a logger for a server whose records are watched.
func (m *repeatedMerges) logger(server int, l *slog.Logger) *slog.Logger {
	return slog.New(mergeListener{l.Handler(), m, server})
}

// mergeListener passes records on, and counts the records that tell of a merge.
type mergeListener struct {
	slog.Handler
	merges *repeatedMerges
	server int
}

// mergeApplied is the message that a replica logs when it has consumed its right neighbour.
const mergeApplied = "a partition has consumed its right neighbour"

// Handle implements slog.Handler.
func (l mergeListener) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == mergeApplied {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "neighbour" {
				l.merges.take(appliedMerge{l.server, a.Value.Uint64()})
			}
			return true
		})
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l mergeListener) WithAttrs(attrs []slog.Attr) slog.Handler {
	l.Handler = l.Handler.WithAttrs(attrs)
	return l
}

// WithGroup implements slog.Handler.
func (l mergeListener) WithGroup(name string) slog.Handler {
	l.Handler = l.Handler.WithGroup(name)
	return l
}

func (m *repeatedMerges) take(a appliedMerge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.applied[a] {
		m.repeated++
	}
	m.applied[a] = true
}

package kv

import (
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/kv/internal/changes"
	"github.com/tidemarkdb/tidemark/kv/internal/whole"
)

const (
	// DefaultWholeMemory and DefaultWholeSpill are how many bytes of changes a feed with Whole holds
	// in memory and in a temporary file.
	DefaultWholeMemory = 64 << 20
	DefaultWholeSpill  = 4 << 30

	minWholeMemory = 32 << 20
)

// WholeOption is an option of Whole: WholeMemory, WholeSpill.
type WholeOption interface{ whole(*whole.Limits) }

type wholeOption func(*whole.Limits)

func (o wholeOption) whole(l *whole.Limits) { o(l) }

// WholeMemory bounds the memory for changes that no progress has covered, in bytes: 32 MiB at
// least. The default is DefaultWholeMemory.
func WholeMemory(bytes int) WholeOption {
	return wholeOption(func(l *whole.Limits) { l.Memory = max(bytes, minWholeMemory) })
}

// WholeSpill bounds the temporary files for changes that do not fit into memory, in bytes, and
// names their directory; an empty name is the system's directory for temporary files. Half of the
// bytes hold changes; the other half is for rewriting them without those that the loop has taken.
// The default is DefaultWholeSpill.
func WholeSpill(dir string, bytes uint64) WholeOption {
	return wholeOption(func(l *whole.Limits) { l.Directory, l.Spill = dir, bytes })
}

// Whole makes Changes yield whole steps: between two progresses come exactly the changes above the
// earlier and at or below the later one, in the order of their timestamps, and those of one
// timestamp in the order of their keys. So the changes of a transaction come together, and a
// program that applies at each progress what has come before it goes from one consistent state to
// the next.
//
// Changes that no progress has covered yet wait in memory, and beyond that in a temporary file. A
// feed that is behind asks for the changes of a span of time for which there is room. So it reaches
// the present however far it is behind, and progress may come more often than ProgressEvery says
// meanwhile. A partition that cannot be read holds back all progress, and so the other partitions.
//
// The changes at one timestamp come together, as those of a transaction. If there is no room for
// these, in half of WholeMemory or of WholeSpill, the feed ends with ErrOverloaded: the next feed
// needs larger limits.
func Whole(options ...WholeOption) ChangesOption {
	return changesOption(func(q *changesQuery) {
		q.whole = &whole.Limits{Memory: DefaultWholeMemory, Spill: DefaultWholeSpill}
		for _, o := range options {
			o.whole(q.whole)
		}
	})
}

// grouped passes a feed's events on in whole steps.
type grouped struct {
	buffer *whole.Buffer
	hand   func(Change) bool
	// err is the error with which the buffer has ended the feed; nil if it has not.
	err error
}

// take takes the next event of the feed. It returns false when the feed is to end.
func (g *grouped) take(e changes.Event) bool {
	if e.Change != nil {
		g.err = g.buffer.Add(&whole.Change{Key: e.Change.Key, Value: e.Change.Value,
			Timestamp: fromWire(e.Change.Version), Deleted: e.Change.Deleted,
			Expires: int64(e.Change.Expires)})
		return g.err == nil
	}
	more := false
	more, g.err = g.buffer.Upto(e.Progress, func(c *whole.Change) bool {
		return g.hand(newChange(c.Key, c.Value, c.Timestamp, c.Deleted, c.Expires))
	})
	return more && g.err == nil && g.hand(changeOf(e))
}

// close releases the buffer, and returns the error with which it has ended the feed.
func (g *grouped) close() error { return errors.Join(g.err, g.buffer.Close()) }

// wholeError is the error of a feed with a buffer as the caller of Changes sees it.
func wholeError(keyspace string, err error) error {
	if !errors.Is(err, whole.ErrFull) {
		return err // nil, of the feed, or of the temporary file
	}
	return &Error{Op: "changes", Keyspace: keyspace,
		Message: fmt.Sprintf("what was written at one timestamp is too large to come whole: %v", err),
		Advice: "go on Since the last progress with more room (kv.WholeMemory, kv.WholeSpill; " +
			"tidemark changes --whole-memory, --whole-spill), or without Whole",
		wraps: []error{ErrOverloaded}}
}

package kv

import (
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/kv/internal/changes"
	"github.com/tidemarkdb/tidemark/kv/internal/whole"
)

const (
	// DefaultWholeMemory and DefaultWholeSpill are the default numbers of bytes of changes that a feed
	// with Whole holds in memory and in a temporary file.
	DefaultWholeMemory = 64 << 20
	DefaultWholeSpill  = 4 << 30

	minWholeMemory = 32 << 20
)

// WholeOption is an option of Whole: WholeMemory, WholeSpill.
type WholeOption interface{ whole(*whole.Limits) }

type wholeOption func(*whole.Limits)

func (o wholeOption) whole(l *whole.Limits) { o(l) }

// WholeMemory limits the memory for changes that no progress has covered, in bytes. The minimum is
// 32 MiB. The default is DefaultWholeMemory.
func WholeMemory(bytes int) WholeOption {
	return wholeOption(func(l *whole.Limits) { l.Memory = max(bytes, minWholeMemory) })
}

// WholeSpill limits the temporary files for changes that do not fit into memory, in bytes, and sets
// their directory. An empty name is the system's directory for temporary files. Half of the bytes
// hold changes. The other half is used to rewrite the files without the changes that the loop has
// taken. The default is DefaultWholeSpill.
func WholeSpill(dir string, bytes uint64) WholeOption {
	return wholeOption(func(l *whole.Limits) { l.Directory, l.Spill = dir, bytes })
}

// Whole makes Changes yield whole steps. Between two progresses come exactly the changes above the
// earlier and at or below the later progress, in the order of their timestamps. Changes of one
// timestamp are in the order of their keys. So the changes of a transaction come together. A
// program that applies, at each progress, the changes before it goes from one consistent state to
// the next.
//
// Changes that no progress has covered yet wait in memory, and then in a temporary file. A feed
// that is behind asks for the changes of a limited period, for which there is space. So it reaches
// the present however far it is behind, and meanwhile progresses may come more often than
// ProgressEvery says. A partition that cannot be read delays all progresses, and so the changes of
// the other partitions.
//
// The changes of one timestamp, such as those of a transaction, must fit into half of WholeMemory
// or half of WholeSpill. Otherwise the feed ends with ErrOverloaded, and the next feed needs larger
// limits.
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
	// err is the error with which the buffer has ended the feed, or nil.
	err error
}

// take processes the next event of the feed. It returns false when the feed must end.
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

// wholeError converts an error of a feed with a buffer to an error for the caller of Changes.
func wholeError(keyspace string, err error) error {
	if !errors.Is(err, whole.ErrFull) {
		return err // nil, or an error of the feed or of the temporary file
	}
	return &Error{Op: "changes", Keyspace: keyspace,
		Message: fmt.Sprintf("what was written at one timestamp is too large to come whole: %v", err),
		Advice: "go on Since the last progress with more room (kv.WholeMemory, kv.WholeSpill; " +
			"tidemark changes --whole-memory, --whole-spill), or without Whole",
		wraps: []error{ErrOverloaded}}
}

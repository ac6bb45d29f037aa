package changes

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Question is what is asked of one partition.
type Question struct {
	// Span is wanted: as much of it as lies in the partition that holds its first key.
	Span keys.Span
	// After: versions above it are wanted; of the key Span.Start, those above Head, if that is
	// higher.
	After, Head hlc.Timestamp
	// Upto, if set, is up to where.
	Upto hlc.Timestamp
	// Limit bounds the answer, in bytes.
	Limit int64
	// Idle is how long it may be held while there is nothing to answer with.
	Idle time.Duration
}

// Answer is what a partition has answered.
type Answer struct {
	// Partition is its span. It holds the first key of the question's.
	Partition keys.Span
	// Changes are all there are of what was asked up to Resolved, or, with More, those of the keys
	// before Resume, and of Resume itself up to ResumeVersion. Of each key the lower versions come
	// first.
	Changes       []*kvpb.Change
	Resolved      hlc.Timestamp
	More          bool
	Resume        []byte
	ResumeVersion hlc.Timestamp
}

// Asker knows the partitions. Its keys are those of the frontier, and those of changes what it
// likes. Ask is called by several goroutines at a time.
type Asker interface {
	// Partition is the span of the partition that holds a key, as far as is known: ok is false if it
	// is not. An error ends the feed.
	Partition(key []byte) (span keys.Span, ok bool, err error)
	// Ask asks a partition. Its answer is one to the question, or an error.
	Ask(context.Context, Question) (Answer, error)
	// Final says that an error of Ask ends the feed. Otherwise it is asked again.
	Final(error) bool
}

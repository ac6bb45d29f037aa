package changes

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Question is a question to one partition.
type Question struct {
	// Span is the wanted span: only the part in the partition that holds its first key is answered.
	Span keys.Span
	// Versions above After are wanted; of the key Span.Start, those above Head if Head is higher.
	After, Head hlc.Timestamp
	// Upto, if set, is the highest timestamp that is wanted.
	Upto hlc.Timestamp
	// Limit bounds the answer, in bytes.
	Limit int64
	// Idle is how long the question may be held while there is nothing to answer with.
	Idle time.Duration
}

// Answer is the answer of a partition.
type Answer struct {
	// Partition is the partition's span. It holds the first key of the question's span.
	Partition keys.Span
	// Changes are all changes of the asked span up to Resolved. With More they are only those of
	// the keys before Resume, and of Resume itself up to ResumeVersion. The versions of a key are
	// in ascending order.
	Changes       []*kvpb.Change
	Resolved      hlc.Timestamp
	More          bool
	Resume        []byte
	ResumeVersion hlc.Timestamp
}

// Asker asks partitions. Its keys are those of the frontier; the keys of changes may have any form.
// Several goroutines may call Ask at a time.
type Asker interface {
	// Partition returns the span of the partition that holds a key; ok is false if it is not known.
	// An error ends the feed.
	Partition(key []byte) (span keys.Span, ok bool, err error)
	// Ask asks a partition.
	Ask(context.Context, Question) (Answer, error)
	// Final reports that an error of Ask ends the feed. After other errors the feed asks again.
	Final(error) bool
}

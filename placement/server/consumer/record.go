package consumer

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// MaxOfKeyspace limits the consumers of a keyspace, including consumers that are too old.
const MaxOfKeyspace = 1000

// Record is a consumer with the revision of its record in the core's store. The revision is 0 if
// the consumer is new.
type Record struct {
	*clusterpb.Consumer
	Revision uint64
}

// At is the position of the consumer.
func (c Record) At() hlc.Timestamp { return wire.FromClusterTimestamp(c.Position) }

// Keep returns how long history is kept for the consumer.
func (c Record) Keep() time.Duration { return time.Duration(c.KeepMillis) * time.Millisecond }

// Behind returns how far a consumer is behind a time. It returns 0 if the consumer is ahead.
func (c Record) Behind(now time.Time) time.Duration { return max(0, now.Sub(c.At().Time())) }

// TooFarBehind reports whether a consumer is behind a time by more than its keep.
func (c Record) TooFarBehind(now time.Time) bool { return c.Behind(now) > c.Keep() }

// Shown returns the consumer with the fields that are not stored.
func (c Record) Shown(keyspace string, now time.Time) *clusterpb.Consumer {
	c.Keyspace, c.LagMillis = keyspace, uint64(c.Behind(now).Milliseconds())
	return c.Consumer
}

// Span returns the keys of a consumer. nil means all keys.
func Span(s *clusterpb.ConsumerSpan) keys.Span {
	return keys.Span{Start: s.GetStart(), End: s.GetEnd()}
}

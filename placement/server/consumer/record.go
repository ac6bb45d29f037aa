package consumer

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// MaxOfKeyspace bounds the consumers of a keyspace, including those that are too old.
const MaxOfKeyspace = 1000

// Record is a consumer, with the revision of its record in the core's store; 0: it is new.
type Record struct {
	*clusterpb.Consumer
	Revision uint64
}

// At is the position of the consumer.
func (c Record) At() hlc.Timestamp { return wire.FromClusterTimestamp(c.Position) }

// Keep returns how long history is kept for it.
func (c Record) Keep() time.Duration { return time.Duration(c.KeepMillis) * time.Millisecond }

// Behind returns how far a consumer is behind a time; 0 if it is ahead.
func (c Record) Behind(now time.Time) time.Duration { return max(0, now.Sub(c.At().Time())) }

// TooFarBehind says whether a consumer is behind a moment by more than its keep.
func (c Record) TooFarBehind(now time.Time) bool { return c.Behind(now) > c.Keep() }

// Shown fills in what is not stored, and returns the consumer.
func (c Record) Shown(keyspace string, now time.Time) *clusterpb.Consumer {
	c.Keyspace, c.LagMillis = keyspace, uint64(c.Behind(now).Milliseconds())
	return c.Consumer
}

// Span returns the keys of a consumer; nil: all.
func Span(s *clusterpb.ConsumerSpan) keys.Span {
	return keys.Span{Start: s.GetStart(), End: s.GetEnd()}
}

package mvcc

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// put adds a version with a value to the batch.
func put(b *engine.StateBatch, key []byte, ts hlc.Timestamp, id RequestID, value []byte) error {
	return Write(b, key, ts, Header{Kind: KindValue, Request: id}, value)
}

// remove adds a tombstone to the batch.
func remove(b *engine.StateBatch, key []byte, ts hlc.Timestamp, id RequestID) error {
	return Write(b, key, ts, Header{Kind: KindTombstone, Request: id}, nil)
}

// findRequest is Getter.FindRequest with a getter of its own.
func findRequest(r engine.Reader, key []byte, after hlc.Timestamp,
	id RequestID) (Version, bool, error) {
	return once(r, func(g *Getter) (Version, bool, error) { return g.FindRequest(key, after, id) })
}

// remainder is the part of a span that a scan with this result left out. It is meaningful only if
// the result says More.
func remainder(s ScanResult, span keys.Span, reverse bool) keys.Span {
	if reverse {
		span.End = s.Resume
	} else {
		span.Start = s.Resume
	}
	return span
}

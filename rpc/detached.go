package rpc

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

// Detached is a copy of a request in a buffer of its own. The requests of one message share the
// message's buffer, which lives for as long as any of them: one that may wait for long is kept as a
// copy, so that it holds what it counts for, and not a message of MaxMessageBytes.
func Detached(q *kvpb.Request) *kvpb.Request {
	b, err := q.MarshalVT()
	if err != nil {
		return q
	}
	own := new(kvpb.Request)
	if err := own.UnmarshalVTUnsafe(b); err != nil {
		return q
	}
	return own
}

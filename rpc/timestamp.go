package rpc

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// ToTimestamp gives the wire form of t; nil for the zero timestamp, which the protocol calls "unset".
func ToTimestamp(t hlc.Timestamp) *kvpb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return &kvpb.Timestamp{Wall: uint64(t.Wall), Logical: t.Logical}
}

// FromTimestamp is the reverse of ToTimestamp. It accepts nil. A wall time beyond the range of int64, which no clock
// produces, becomes negative: older than everything, so that a forged one cannot pose as the future.
func FromTimestamp(t *kvpb.Timestamp) hlc.Timestamp {
	if t == nil {
		return hlc.Timestamp{}
	}
	return hlc.Timestamp{Wall: int64(t.Wall), Logical: t.Logical}
}

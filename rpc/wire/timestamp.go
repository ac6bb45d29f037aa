package wire

import (
	"math"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// ToTimestamp gives the wire form of t; nil for the zero timestamp, which the protocol calls
// "unset".
func ToTimestamp(t hlc.Timestamp) *kvpb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return &kvpb.Timestamp{Wall: uint64(t.Wall), Logical: t.Logical}
}

// FromTimestamp is the reverse of ToTimestamp. It accepts nil. A wall time beyond the range of
// int64, which no clock produces, becomes the highest timestamp: a forged one is refused as lying
// in the future, and never mistaken for an old one.
func FromTimestamp(t *kvpb.Timestamp) hlc.Timestamp {
	switch {
	case t == nil:
		return hlc.Timestamp{}
	case t.Wall > math.MaxInt64:
		return hlc.MaxTimestamp
	}
	return hlc.Timestamp{Wall: int64(t.Wall), Logical: t.Logical}
}

// ToClusterTimestamp is ToTimestamp for the protocol of the cluster.
func ToClusterTimestamp(t hlc.Timestamp) *clusterpb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return &clusterpb.Timestamp{Wall: uint64(t.Wall), Logical: t.Logical}
}

// FromClusterTimestamp is FromTimestamp for the protocol of the cluster.
func FromClusterTimestamp(t *clusterpb.Timestamp) hlc.Timestamp {
	if t == nil {
		return hlc.Timestamp{}
	}
	return FromTimestamp(&kvpb.Timestamp{Wall: t.Wall, Logical: t.Logical})
}

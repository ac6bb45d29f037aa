package keys

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
)

// The first byte of a state key.
const (
	tableLocal  = 0x01
	tableAnchor = 0x02
	tableData   = 0x03
	tableEnd    = 0x04
)

const (
	// sentinel ends the key part of an engine key.
	sentinel = 0x00
	// Lengths of an encoded timestamp, the trailing length byte included. A logical counter of 0 is
	// left out, which keeps the encoding of each timestamp unique.
	wallSuffix    = 9
	logicalSuffix = 13
)

// Suffixes of the replicated keys that a partition stores under its id.
const (
	// SuffixApplied is the suffix for the applied index and term.
	SuffixApplied = "applied"
	// SuffixDescriptor is the suffix for the partition's descriptor.
	SuffixDescriptor = "desc"
	// SuffixGC is the suffix for the garbage collection threshold.
	SuffixGC = "gc"
)

// LocalKey is the state key of an entry that the partition stores under its id.
func LocalKey(id PartitionID, suffix string) []byte {
	key := append(make([]byte, 0, 10+len(suffix)), tableLocal)
	key = binary.BigEndian.AppendUint64(key, uint64(id))
	return append(append(key, suffix...), sentinel)
}

// LocalSpan is the state span of all entries that the partition stores under its id.
func LocalSpan(id PartitionID) Span {
	start := binary.BigEndian.AppendUint64([]byte{tableLocal}, uint64(id))
	end := PrefixEnd(start)
	return Span{Start: append(start, sentinel), End: append(end, sentinel)}
}

// LocalKeys is the state span of all entries that partitions store under their ids.
func LocalKeys() Span {
	return Span{Start: []byte{tableLocal, sentinel}, End: []byte{tableLocal + 1, sentinel}}
}

// DecodeLocalKey is the reverse of LocalKey.
func DecodeLocalKey(stateKey []byte) (PartitionID, string, error) {
	n := len(stateKey)
	if n < 10 || stateKey[0] != tableLocal || stateKey[n-1] != sentinel {
		return 0, "", fmt.Errorf("state key %s is not a local key", Pretty(stateKey))
	}
	return PartitionID(binary.BigEndian.Uint64(stateKey[1:9])), string(stateKey[9 : n-1]), nil
}

// AppendDataKey appends the unversioned state key of an internal key. It sorts directly before the
// key's versions, and is the prefix by which bloom filters know the key.
func AppendDataKey(dst, internalKey []byte) []byte {
	dst = append(dst, tableData)
	return append(append(dst, internalKey...), sentinel)
}

// DataKey is the unversioned state key of an internal key.
func DataKey(internalKey []byte) []byte {
	return AppendDataKey(make([]byte, 0, len(internalKey)+2+logicalSuffix), internalKey)
}

// AppendTimestamp turns the unversioned data key that dst ends with into the versioned one, in
// place. A zero timestamp leaves it as it is.
func AppendTimestamp(dst []byte, ts hlc.Timestamp) []byte {
	if ts.IsZero() {
		return dst
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(ts.Wall))
	if ts.Logical == 0 {
		return append(dst, wallSuffix)
	}
	dst = binary.BigEndian.AppendUint32(dst, ts.Logical)
	return append(dst, logicalSuffix)
}

// VersionedKeySize is the length of a version's state key, in bytes.
func VersionedKeySize(internalKey []byte, ts hlc.Timestamp) int {
	size := len(internalKey) + 2
	switch {
	case ts.IsZero():
	case ts.Logical == 0:
		size += wallSuffix
	default:
		size += logicalSuffix
	}
	return size
}

// IsData reports whether a state key is in the table of versions. It is cheaper than
// DecodeVersioned, which fails on all other keys with a detailed error.
func IsData(stateKey []byte) bool { return len(stateKey) > 0 && stateKey[0] == tableData }

// DecodeVersioned splits the state key of a version, or an unversioned data key (then ts is zero),
// into the internal key, which aliases the argument, and the timestamp. It fails on a key that
// AppendTimestamp cannot have made.
func DecodeVersioned(stateKey []byte) (internalKey []byte, ts hlc.Timestamp, err error) {
	n := len(stateKey)
	if n < 2 || stateKey[0] != tableData {
		return nil, hlc.Timestamp{}, fmt.Errorf("state key %s is not a data key", Pretty(stateKey))
	}
	suffix := int(stateKey[n-1])
	end := n - suffix - 1 // index of the sentinel
	if end < 1 || stateKey[end] != sentinel {
		return nil, hlc.Timestamp{}, fmt.Errorf("data key %s is malformed", Pretty(stateKey))
	}
	switch suffix {
	case 0:
	case wallSuffix:
		ts.Wall = int64(binary.BigEndian.Uint64(stateKey[end+1:]))
	case logicalSuffix:
		ts.Wall = int64(binary.BigEndian.Uint64(stateKey[end+1:]))
		ts.Logical = binary.BigEndian.Uint32(stateKey[end+9:])
	}
	// Only the one valid encoding of a timestamp is accepted.
	if (suffix != 0 && suffix != wallSuffix && suffix != logicalSuffix) || ts.Wall < 0 ||
		(suffix == wallSuffix && ts.Wall == 0) || (suffix == logicalSuffix && ts.Logical == 0) {
		return nil, hlc.Timestamp{}, fmt.Errorf("data key %s has a malformed timestamp",
			Pretty(stateKey))
	}
	return stateKey[1:end:end], ts, nil
}

// DataSpan is the state span of all versions of the internal keys in span.
func DataSpan(span Span) Span {
	if len(span.End) == 0 {
		return Span{Start: DataKey(span.Start), End: []byte{tableEnd, sentinel}}
	}
	return Span{Start: DataKey(span.Start), End: DataKey(span.End)}
}

// AnchorKey is the state key of an entry that belongs to the partition that holds the internal key.
// The internal key is escaped, so that the anchor key lies in AnchorSpan(span) exactly if the
// internal key lies in span, whatever the suffix.
func AnchorKey(internalKey []byte, suffix string) []byte {
	key := appendEscaped(append(make([]byte, 0, len(internalKey)+len(suffix)+4), tableAnchor),
		internalKey)
	return append(append(key, suffix...), sentinel)
}

// AnchorSpan is the state span of all entries anchored at internal keys in span.
func AnchorSpan(span Span) Span {
	anchors := Span{
		Start: append(appendEscaped([]byte{tableAnchor}, span.Start), sentinel),
		End:   []byte{tableData, sentinel},
	}
	if len(span.End) > 0 {
		anchors.End = append(appendEscaped([]byte{tableAnchor}, span.End), sentinel)
	}
	return anchors
}

// DecodeAnchorKey is the reverse of AnchorKey.
func DecodeAnchorKey(stateKey []byte) (internalKey []byte, suffix string, err error) {
	n := len(stateKey)
	if n < 2 || stateKey[0] != tableAnchor || stateKey[n-1] != sentinel {
		return nil, "", fmt.Errorf("state key %s is not an anchor key", Pretty(stateKey))
	}
	body := stateKey[1 : n-1]
	for i := 0; i < len(body); i++ {
		if body[i] != 0x00 {
			internalKey = append(internalKey, body[i])
			continue
		}
		if i+1 == len(body) {
			break
		}
		i++
		switch body[i] {
		case escapedZero:
			internalKey = append(internalKey, 0x00)
		case escapedEnd:
			return internalKey, string(body[i+1:]), nil
		default:
			return nil, "", fmt.Errorf("anchor key %s is malformed", Pretty(stateKey))
		}
	}
	return nil, "",
		fmt.Errorf("anchor key %s is malformed: its internal key has no end", Pretty(stateKey))
}

// The byte after a zero byte in an escaped key. The terminator sorts below an escaped zero, so that
// escaped keys sort as the keys do, and no escaped key is a prefix of another.
const (
	escapedEnd  = 0x01
	escapedZero = 0xff
)

func appendEscaped(dst, key []byte) []byte {
	for _, b := range key {
		dst = append(dst, b)
		if b == 0x00 {
			dst = append(dst, escapedZero)
		}
	}
	return append(dst, 0x00, escapedEnd)
}

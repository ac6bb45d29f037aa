package whole

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/sorting"
)

// ErrFull is the error of a change for which there is no room, in memory or in the temporary file.
var ErrFull = errors.New("there is no room for more changes")

// Change is a version of a key, or a deletion. Expires is the wall time at which the value expires,
// in nanoseconds since the epoch; 0 if it does not.
type Change struct {
	Key, Value []byte
	Timestamp  hlc.Timestamp
	Deleted    bool
	Expires    int64
}

// Limits bound a Buffer, in bytes. Memory must be at least twice a sorter's minimum (sorting.New).
type Limits struct {
	Memory int
	// Spill bounds the temporary files in Directory. An empty Directory means the system's
	// directory for temporary files.
	Spill     uint64
	Directory string
}

// overhead is a lower bound of a change's size beside its key and value.
const overhead = 100

// Buffer keeps changes until a progress covers them. One goroutine uses it. The caller closes it.
//
// INVARIANT: the sorter holds at most half of the memory and of the file: records that stay for
// long are sometimes copied (sorting.Sorter.Take), and then both copies exist for a while.
type Buffer struct {
	limits Limits
	// held has all changes that no progress has covered.
	held *sorting.Sorter
	// key and value are scratch memory of Add.
	key, value []byte
}

// New returns an empty buffer.
func New(limits Limits) *Buffer {
	return &Buffer{limits: limits, held: sorting.New(limits.Memory/2, limits.Directory)}
}

// Close frees the memory and the files.
func (b *Buffer) Close() error { return b.held.Close() }

// Fits reports whether there is room for so many changes, with so many bytes of keys and values.
func (b *Buffer) Fits(changes, bytes int) (bool, error) {
	for {
		size := uint64(bytes + changes*overhead)
		memory, file := b.held.Held()
		if memory+size <= uint64(b.limits.Memory/2) || file+memory+size <= b.limits.Spill/2 {
			return true, nil
		}
		if more, err := b.held.Compact(); !more || err != nil {
			return false, err
		}
	}
}

// room is the number of bytes that the buffer can hold at least.
func (b *Buffer) room() uint64 { return max(uint64(b.limits.Memory/2), b.limits.Spill/2) }

// Share returns the bytes held, relative to the room in memory. Above 1, some are in a file.
func (b *Buffer) Share() float64 {
	memory, file := b.held.Held()
	return float64(memory+file) / float64(b.limits.Memory/2)
}

// Add keeps a change, whose bytes are copied. A change that is added twice counts once. After
// ErrFull the change is not in the buffer.
func (b *Buffer) Add(c *Change) error {
	fits, err := b.Fits(1, len(c.Key)+len(c.Value))
	if err != nil {
		return err
	}
	if !fits {
		return b.Full(c.Timestamp)
	}
	b.key = appendPosition(b.key[:0], c.Timestamp)
	b.key = append(b.key, c.Key...)
	b.value = append(b.value[:0], 0)
	if c.Deleted {
		b.value[0] = 1
	}
	b.value = binary.AppendUvarint(b.value, uint64(c.Expires))
	b.value = append(b.value, c.Value...)
	return b.held.Add(sorting.Record{Key: b.key, Value: b.value})
}

// Full returns ErrFull for changes at a timestamp.
func (b *Buffer) Full(at hlc.Timestamp) error {
	memory, file := b.held.Held()
	return fmt.Errorf("%w at %s: %d bytes are in memory, of %d, and %d in a temporary file, of %d",
		ErrFull, at, memory, b.limits.Memory/2, file, b.limits.Spill/2)
}

// Upto yields the changes at or below a timestamp, in order, and removes them. The bytes of a
// change belong to the caller. more is false if yield returned false.
func (b *Buffer) Upto(ts hlc.Timestamp, yield func(*Change) bool) (more bool, err error) {
	return b.held.Take(appendPosition(nil, ts.Next()),
		func(r sorting.Record) bool { return yield(decode(r)) })
}

// Forget makes room: it keeps the changes of the lowest timestamps, in at most half of the room,
// but all of those at the lowest timestamp, and none above the timestamp most. next is the
// timestamp of a change that is about to be added: if it is lower than all others, it counts as the
// lowest. Forget returns the timestamp up to which it has kept all changes, and whether it has
// dropped any.
func (b *Buffer) Forget(next, most hlc.Timestamp) (upto hlc.Timestamp, forgot bool, err error) {
	upto = hlc.Min(next, most)
	half, size, any := b.room()/2, uint64(0), false
	var group hlc.Timestamp // the timestamp of the last record
	if err := b.held.Each(func(r sorting.Record) bool {
		switch at := position(r.Key); {
		case !any:
			any, group, upto = true, at, hlc.Min(upto, at)
		case at != group:
			if size <= half {
				upto = hlc.Max(upto, group)
			}
			group = at
		}
		size += uint64(len(r.Key) + len(r.Value) + overhead)
		forgot = upto.Less(group) && (half < size || most.Less(group))
		return !forgot
	}); err != nil {
		return upto, false, err
	}
	if !forgot && any {
		if upto.Less(group) { // all changes are kept
			upto = group
		}
		return upto, false, nil
	}
	return upto, forgot, b.held.Truncate(appendPosition(nil, upto.Next()))
}

// positionSize is the length of a timestamp as appendPosition writes it.
const positionSize = 12

// appendPosition appends a timestamp so that its bytes have the order of timestamps.
func appendPosition(dst []byte, ts hlc.Timestamp) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(ts.Wall))
	return binary.BigEndian.AppendUint32(dst, ts.Logical)
}

// position is the reverse of appendPosition.
func position(key []byte) hlc.Timestamp {
	return hlc.Timestamp{Wall: int64(binary.BigEndian.Uint64(key)),
		Logical: binary.BigEndian.Uint32(key[8:])}
}

// decode decodes a change that Add has encoded.
func decode(r sorting.Record) *Change {
	expires, n := binary.Uvarint(r.Value[1:])
	data := append(append(make([]byte, 0, len(r.Key)+len(r.Value)), r.Key[positionSize:]...),
		r.Value[1+n:]...)
	size := len(r.Key) - positionSize
	return &Change{Key: data[:size:size], Value: data[size:], Timestamp: position(r.Key),
		Deleted: r.Value[0] == 1, Expires: int64(expires)}
}

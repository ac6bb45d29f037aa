package whole

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/sorting"
)

// ErrFull is the error of Add when neither the memory nor the temporary file has room.
var ErrFull = errors.New("too many changes lie above the last progress")

// Change is a version of a key, or a deletion. Expires is the wall time at which the value expires,
// in nanoseconds since the epoch; 0 if it does not.
type Change struct {
	Key, Value []byte
	Timestamp  hlc.Timestamp
	Deleted    bool
	Expires    int64
}

// Limits bound a Buffer, in bytes. Memory is at least twice what a sorter needs (sorting.New).
type Limits struct {
	Memory int
	// Spill bounds the temporary file, which is made in Directory; an empty Directory is that of the
	// system for temporary files.
	Spill     uint64
	Directory string
}

// Buffer is for one goroutine. New makes one; Close it.
type Buffer struct {
	limits Limits
	// held has all changes that no progress has covered. spare is empty, and takes over what a
	// progress leaves.
	held, spare *sorting.Sorter
	// key and value are used again by Add.
	key, value []byte
}

// New returns an empty buffer.
func New(limits Limits) *Buffer {
	b := &Buffer{limits: limits}
	b.held = sorting.New(limits.Memory/2, limits.Directory)
	b.spare = sorting.New(limits.Memory/2, limits.Directory)
	return b
}

// Close gives back the memory and the file.
func (b *Buffer) Close() error { return errors.Join(b.held.Close(), b.spare.Close()) }

// Add keeps a change, whose bytes are copied. A change that is added twice counts once. After an
// error the buffer is of no use any more.
func (b *Buffer) Add(c *Change) error {
	b.key = appendPosition(b.key[:0], c.Timestamp)
	b.key = append(b.key, c.Key...)
	b.value = append(b.value[:0], 0)
	if c.Deleted {
		b.value[0] = 1
	}
	b.value = binary.AppendUvarint(b.value, uint64(c.Expires))
	b.value = append(b.value, c.Value...)
	if err := b.held.Add(sorting.Record{Key: b.key, Value: b.value}); err != nil {
		return err
	}
	if spilled := b.held.Spilled(); spilled > b.limits.Spill {
		return fmt.Errorf("%w: %d bytes in memory and %d in a temporary file", ErrFull,
			b.limits.Memory/2, spilled)
	}
	return nil
}

// Upto hands on the changes at or below a timestamp, in order, and keeps the others. The bytes of a
// change belong to the caller. more is false if yield was: nothing more is handed on then.
func (b *Buffer) Upto(ts hlc.Timestamp, yield func(*Change) bool) (more bool, err error) {
	if b.held.Records() == 0 {
		return true, nil
	}
	for r, err := range b.held.Sorted() {
		if err != nil {
			return false, err
		}
		c := decode(r)
		if ts.Less(c.Timestamp) {
			if err := b.spare.Add(r); err != nil {
				return false, err
			}
			continue
		}
		if !yield(c) {
			return false, nil
		}
	}
	if err := b.held.Reset(); err != nil {
		return false, err
	}
	b.held, b.spare = b.spare, b.held
	return true, nil
}

// positionSize is the length of a timestamp as appendPosition writes it.
const positionSize = 12

// appendPosition appends a timestamp so that its bytes have the order of timestamps.
func appendPosition(dst []byte, ts hlc.Timestamp) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(ts.Wall))
	return binary.BigEndian.AppendUint32(dst, ts.Logical)
}

// decode is the reverse of what Add does to a change.
func decode(r sorting.Record) *Change {
	expires, n := binary.Uvarint(r.Value[1:])
	data := append(append(make([]byte, 0, len(r.Key)+len(r.Value)), r.Key[positionSize:]...),
		r.Value[1+n:]...)
	size := len(r.Key) - positionSize
	return &Change{Key: data[:size:size], Value: data[size:],
		Timestamp: hlc.Timestamp{Wall: int64(binary.BigEndian.Uint64(r.Key)),
			Logical: binary.BigEndian.Uint32(r.Key[8:])},
		Deleted: r.Value[0] == 1, Expires: int64(expires)}
}

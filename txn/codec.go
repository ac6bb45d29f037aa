package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

func appendTimestamp(dst []byte, t hlc.Timestamp) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(t.Wall)), uint64(t.Logical))
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// decoder takes fields from the front of data. The first field that does not fit sets err, and all
// later fields are zero.
type decoder struct {
	version byte
	data    []byte
	err     error
}

// begin reads the version byte. A version outside 1 to latest is an error.
func begin(data []byte, latest byte) (*decoder, error) {
	if len(data) == 0 {
		return nil, errors.New("empty")
	}
	if data[0] == 0 || data[0] > latest {
		return nil, fmt.Errorf("version %d, this program knows versions up to %d", data[0], latest)
	}
	return &decoder{version: data[0], data: data[1:]}, nil
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.data = nil
}

func (d *decoder) byte(what string) byte {
	if len(d.data) == 0 {
		d.fail("it ends before its %s", what)
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return b
}

func (d *decoder) id() ID {
	if len(d.data) < idSize {
		d.fail("it ends before its id")
		return ID{}
	}
	id, err := ParseID(d.data[:idSize])
	if err != nil {
		d.fail("%w", err)
		return ID{}
	}
	d.data = d.data[idSize:]
	return id
}

// number takes a uvarint in its shortest form, at most limit.
func (d *decoder) number(what string, limit uint64) uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 || (n > 1 && d.data[n-1] == 0) || v > limit {
		d.fail("malformed %s", what)
		return 0
	}
	d.data = d.data[n:]
	return v
}

// milliseconds takes a duration of at most MaxLimit.
func (d *decoder) milliseconds(what string) time.Duration {
	return time.Duration(d.number(what, uint64(MaxLimit/time.Millisecond))) * time.Millisecond
}

func (d *decoder) timestamp(what string) hlc.Timestamp {
	wall := d.number(what, 1<<63-1)
	return hlc.Timestamp{Wall: int64(wall), Logical: uint32(d.number(what, 1<<32-1))}
}

// bytes takes a length and as many bytes, which alias data.
func (d *decoder) bytes(what string, limit uint64) []byte {
	n := d.number(what, limit)
	if n > uint64(len(d.data)) {
		d.fail("it ends within its %s", what)
		return nil
	}
	b := d.data[:n:n]
	d.data = d.data[n:]
	return b
}

// rest returns the bytes that are left; nil if all are taken.
func (d *decoder) rest() []byte {
	if len(d.data) == 0 {
		return nil
	}
	b := d.data[:len(d.data):len(d.data)]
	d.data = nil
	return b
}

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemarkdb/tidemark/hlc"
)

// Row is a row of an encoded kvpb.Rows.
type Row struct {
	Key, Value []byte
	Version    hlc.Timestamp
	// Expires is the wall time at which the value expires; 0: it does not expire.
	Expires int64
}

// Tags of the encoding: field number and wire type in one byte.
const (
	tagPair    = 1<<3 | 2 // Rows.pairs
	tagKey     = 1<<3 | 2 // Pair.key
	tagValue   = 2<<3 | 2 // Pair.value
	tagVersion = 3<<3 | 2 // Pair.version
	tagExpires = 4<<3 | 1 // Pair.expires
	tagWall    = 1<<3 | 1 // Timestamp.wall
	tagLogical = 2 << 3   // Timestamp.logical
)

// AppendRow appends a row to an encoded kvpb.Rows, as the generated code would encode it.
func AppendRow(dst []byte, key, value []byte, version hlc.Timestamp, expires int64) []byte {
	stamp := 0
	if version.Wall != 0 {
		stamp += 1 + 8
	}
	if version.Logical != 0 {
		stamp += 1 + VarintSize(uint64(version.Logical))
	}
	size := 1 + VarintSize(uint64(len(key))) + len(key)
	if stamp > 0 {
		size += 2 + stamp
	}
	if expires != 0 {
		size += 1 + 8
	}
	if len(value) > 0 {
		size += 1 + VarintSize(uint64(len(value))) + len(value)
	}
	dst = append(dst, tagPair)
	dst = binary.AppendUvarint(dst, uint64(size))
	dst = append(dst, tagKey)
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	if len(value) > 0 {
		dst = append(dst, tagValue)
		dst = binary.AppendUvarint(dst, uint64(len(value)))
		dst = append(dst, value...)
	}
	if stamp > 0 {
		dst = append(dst, tagVersion, byte(stamp))
	}
	if version.Wall != 0 {
		dst = append(dst, tagWall)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(version.Wall))
	}
	if version.Logical != 0 {
		dst = append(dst, tagLogical)
		dst = binary.AppendUvarint(dst, uint64(version.Logical))
	}
	if expires != 0 {
		dst = append(dst, tagExpires)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(expires))
	}
	return dst
}

var (
	errRow  = errors.New("malformed rows: a row has no key")
	errType = errors.New("malformed rows: a field has the wrong type")
)

// DecodeRows decodes a kvpb.Rows. Keys and values alias the argument. Unknown fields are skipped.
func DecodeRows(encoded []byte) ([]Row, error) {
	count := 0
	if err := eachField(encoded,
		func(number protowire.Number, kind protowire.Type, _ []byte, _ uint64) error {
			if number == 1 {
				count++
				return expect(kind, protowire.BytesType)
			}
			return nil
		}); err != nil {
		return nil, err
	}
	rows := make([]Row, 0, count)
	err := eachField(encoded,
		func(number protowire.Number, _ protowire.Type, pair []byte, _ uint64) error {
			if number != 1 {
				return nil
			}
			rows = append(rows, Row{})
			return rows[len(rows)-1].decode(pair)
		})
	return rows, err
}

func expect(kind, want protowire.Type) error {
	if kind != want {
		return errType
	}
	return nil
}

func (r *Row) decode(pair []byte) error {
	err := eachField(pair,
		func(number protowire.Number, kind protowire.Type, b []byte, x uint64) error {
			switch number {
			case 1:
				r.Key = b
			case 2:
				r.Value = b
			case 3:
				if kind == protowire.BytesType {
					return eachField(b, r.stamp)
				}
			case 4:
				r.Expires = int64(x)
				return expect(kind, protowire.Fixed64Type)
			default:
				return nil
			}
			return expect(kind, protowire.BytesType)
		})
	if err == nil && len(r.Key) == 0 {
		err = errRow
	}
	return err
}

// stamp decodes a field of the version.
func (r *Row) stamp(number protowire.Number, kind protowire.Type, _ []byte, x uint64) error {
	switch number {
	case 1:
		r.Version.Wall = int64(x)
		return expect(kind, protowire.Fixed64Type)
	case 2:
		r.Version.Logical = uint32(x)
		return expect(kind, protowire.VarintType)
	}
	return nil
}

// eachField walks over the fields of an encoded message, until f fails. b or x is the content,
// depending on the field's type.
func eachField(encoded []byte,
	f func(number protowire.Number, kind protowire.Type, b []byte, x uint64) error) error {
	for len(encoded) > 0 {
		number, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return fmt.Errorf("malformed rows: %w", protowire.ParseError(n))
		}
		encoded = encoded[n:]
		var b []byte
		var x uint64
		switch kind {
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(encoded)
		case protowire.Fixed64Type:
			x, n = protowire.ConsumeFixed64(encoded)
		case protowire.VarintType:
			x, n = protowire.ConsumeVarint(encoded)
		default:
			n = protowire.ConsumeFieldValue(number, kind, encoded)
		}
		if n < 0 {
			return fmt.Errorf("malformed rows: %w", protowire.ParseError(n))
		}
		encoded = encoded[n:]
		if err := f(number, kind, b, x); err != nil {
			return err
		}
	}
	return nil
}

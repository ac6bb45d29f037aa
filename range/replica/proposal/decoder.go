package proposal

import (
	"encoding/binary"

	"github.com/tidemarkdb/tidemark/hlc"
)

// AppendTimestamp appends a timestamp: wall and logical, a uvarint each.
func AppendTimestamp(dst []byte, t hlc.Timestamp) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(t.Wall)), uint64(t.Logical))
}

// Decoder takes fields from the front of Data. The first field that does not fit sets Bad, and it
// and all later fields are zero. Replicated data has one form: a longer encoding of the same number
// is refused.
type Decoder struct {
	Data []byte
	Bad  bool
}

// Uvarint takes an unsigned number.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.Data)
	if n <= 0 || (n > 1 && d.Data[n-1] == 0) {
		d.fail()
		return 0
	}
	d.Data = d.Data[n:]
	return v
}

// Varint takes a signed number.
func (d *Decoder) Varint() int64 {
	u := d.Uvarint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

// Timestamp takes a timestamp.
func (d *Decoder) Timestamp() hlc.Timestamp {
	wall, logical := d.Uvarint(), d.Uvarint()
	if wall > 1<<63-1 || logical > 1<<32-1 {
		d.fail()
		return hlc.Timestamp{}
	}
	return hlc.Timestamp{Wall: int64(wall), Logical: uint32(logical)}
}

// Bytes takes a length and as many bytes, which alias Data.
func (d *Decoder) Bytes() []byte {
	n := d.Uvarint()
	if n > uint64(len(d.Data)) {
		d.fail()
		return nil
	}
	b := d.Data[:n:n]
	d.Data = d.Data[n:]
	return b
}

func (d *Decoder) fail() { d.Bad, d.Data = true, nil }

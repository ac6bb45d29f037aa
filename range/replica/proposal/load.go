package proposal

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Load is what an entry of KindLoad carries in place of a batch: records that all become versions
// at one timestamp.
//
//	timestamp  wall and logical, uvarint each
//	client     8 bytes
//	sequence   uvarint
//	flags      1 byte: 1 for commit wait
//	block      the rest (rpc/block), with user keys
type Load struct {
	Timestamp  hlc.Timestamp
	Request    mvcc.RequestID
	CommitWait bool
	// Block aliases what it was decoded from.
	Block []byte
}

// Encode returns it as it stands in the entry.
func (l *Load) Encode() []byte {
	dst := make([]byte, 0, 5*binary.MaxVarintLen64+len(l.Block))
	dst = AppendTimestamp(dst, l.Timestamp)
	dst = binary.BigEndian.AppendUint64(dst, l.Request.Client)
	dst = binary.AppendUvarint(dst, l.Request.Sequence)
	flags := byte(0)
	if l.CommitWait {
		flags = 1
	}
	return append(append(dst, flags), l.Block...)
}

// DecodeLoad is the reverse of Encode. It looks at the block no further.
func DecodeLoad(data []byte) (Load, error) {
	d := Decoder{Data: data}
	l := Load{Timestamp: d.Timestamp()}
	if len(d.Data) >= 8 {
		l.Request.Client = binary.BigEndian.Uint64(d.Data)
		d.Data = d.Data[8:]
	} else {
		d.fail()
	}
	l.Request.Sequence = d.Uvarint()
	if d.Bad || len(d.Data) == 0 || d.Data[0] > 1 || l.Timestamp.IsZero() {
		return Load{}, fmt.Errorf("%w: the header of a load is cut off or out of range", ErrMalformed)
	}
	l.CommitWait, l.Block = d.Data[0] == 1, d.Data[1:]
	return l, nil
}

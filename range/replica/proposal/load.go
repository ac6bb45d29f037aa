package proposal

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Load is the content of an entry of KindLoad instead of a batch: records that all become versions
// at one timestamp.
//
//	timestamp  wall and logical, uvarint each
//	client     8 bytes
//	sequence   uvarint
//	flags      1 byte: 1 for commit wait, 2 for an expiry
//	expires    uvarint, not 0; only with the flag for it
//	block      the rest (rpc/block), with user keys
type Load struct {
	Timestamp  hlc.Timestamp
	Request    mvcc.RequestID
	CommitWait bool
	// Expires is the wall time at which records without a lifetime of their own expire; 0: never.
	Expires int64
	// Block aliases the data from which it was decoded.
	Block []byte
}

// Encode returns the load in the form of the entry.
func (l *Load) Encode() []byte {
	dst := make([]byte, 0, 6*binary.MaxVarintLen64+len(l.Block))
	dst = AppendTimestamp(dst, l.Timestamp)
	dst = binary.BigEndian.AppendUint64(dst, l.Request.Client)
	dst = binary.AppendUvarint(dst, l.Request.Sequence)
	flags := byte(0)
	if l.CommitWait {
		flags |= loadCommitWait
	}
	if l.Expires != 0 {
		dst = binary.AppendUvarint(append(dst, flags|loadExpires), uint64(l.Expires))
	} else {
		dst = append(dst, flags)
	}
	return append(dst, l.Block...)
}

// The flags of a Load.
const (
	loadCommitWait = 1
	loadExpires    = 2
)

// DecodeLoad is the reverse of Encode. It does not check the block.
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
	errHeader := fmt.Errorf("%w: the header of a load is cut off or out of range", ErrMalformed)
	if d.Bad || len(d.Data) == 0 || d.Data[0] > loadCommitWait|loadExpires || l.Timestamp.IsZero() {
		return Load{}, errHeader
	}
	flags := d.Data[0]
	d.Data = d.Data[1:]
	if l.CommitWait = flags&loadCommitWait != 0; flags&loadExpires != 0 {
		expires := d.Uvarint()
		if d.Bad || expires == 0 || expires > math.MaxInt64 {
			return Load{}, errHeader
		}
		l.Expires = int64(expires)
	}
	l.Block = d.Data
	return l, nil
}

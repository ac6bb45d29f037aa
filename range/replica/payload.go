package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// payloadVersion is the first byte of every entry. A replica that meets a higher one stops applying: it must not guess what
// its peers did.
const payloadVersion = 1

// commandKind says what an entry may contain.
type commandKind byte

const (
	// kindWrite sets versions, and anchored records that are not a transaction's.
	kindWrite commandKind = 1
	// kindThreshold raises the garbage collection threshold; it has no batch.
	kindThreshold commandKind = 2
	// kindRemove deletes versions and anchored records that no read at or above the threshold can see.
	kindRemove commandKind = 3
	// kindDescriptor sets the descriptor.
	kindDescriptor commandKind = 4
	// kindTransaction is kindWrite, and besides it sets and deletes locks and sets transaction records.
	kindTransaction commandKind = 5
)

// statsDelta is by how much an entry changes the partition's Stats. Evaluation computes it, so that all replicas count alike.
type statsDelta struct {
	liveKeys, versions, bytes int64
}

// payload is the content of one entry of the partition's log.
//
//	version  1 byte
//	kind     1 byte
//	proposer, sequence, base          uvarint each
//	highest, closed, threshold        wall and logical, uvarint each
//	live keys, versions, bytes        varint each
//	batch                             the rest: a Pebble batch, or nothing
type payload struct {
	kind     commandKind
	proposer keys.ReplicaID
	// sequence numbers the proposals of a replica, from 1 and upwards while it is open.
	sequence uint64
	// base is the sequence of the entry on which this one was evaluated: the one before it in the same term, 0 for the
	// first of a term. An entry takes effect only if that one was the last that did.
	base uint64
	// highest is at or above every timestamp in the batch, the prepared timestamps of locks too.
	highest hlc.Timestamp
	// closed is the timestamp that the entry closes. Reserved for reading from followers; zero closes nothing.
	closed hlc.Timestamp
	// threshold is the garbage collection threshold that the entry sets, if it is above the present one.
	threshold hlc.Timestamp
	delta     statsDelta
	// batch is a Pebble batch's representation, empty if the entry writes nothing. It aliases the entry after decoding.
	batch []byte
}

// maxPayloadHeader is an upper bound on the encoded length of all but the batch.
const maxPayloadHeader = 2 + 12*binary.MaxVarintLen64

// append appends the encoded payload.
func (p *payload) append(dst []byte) []byte {
	dst = append(dst, payloadVersion, byte(p.kind))
	dst = binary.AppendUvarint(dst, uint64(p.proposer))
	dst = binary.AppendUvarint(dst, p.sequence)
	dst = binary.AppendUvarint(dst, p.base)
	dst = appendTimestamp(dst, p.highest)
	dst = appendTimestamp(dst, p.closed)
	dst = appendTimestamp(dst, p.threshold)
	dst = binary.AppendVarint(dst, p.delta.liveKeys)
	dst = binary.AppendVarint(dst, p.delta.versions)
	dst = binary.AppendVarint(dst, p.delta.bytes)
	return append(dst, p.batch...)
}

func (p *payload) encode() []byte {
	return p.append(make([]byte, 0, maxPayloadHeader+len(p.batch)))
}

// errPayload is what every decoding error wraps. The replica that meets one is failed.
var errPayload = errors.New("malformed replicated command")

// decodePayload reads an entry. It checks the batch no further than that it is one: see walkBatch.
func decodePayload(data []byte) (payload, error) {
	var p payload
	if len(data) < 2 {
		return p, fmt.Errorf("%w: %d bytes", errPayload, len(data))
	}
	if data[0] != payloadVersion {
		return p, fmt.Errorf("%w: version %d, this server understands %d; was it written by a newer one?", errPayload, data[0], payloadVersion)
	}
	p.kind = commandKind(data[1])
	if p.kind < kindWrite || p.kind > kindTransaction {
		return p, fmt.Errorf("%w: unknown kind %d", errPayload, data[1])
	}
	d := decoder{data: data[2:]}
	p.proposer = keys.ReplicaID(d.uvarint())
	p.sequence = d.uvarint()
	p.base = d.uvarint()
	p.highest = d.timestamp()
	p.closed = d.timestamp()
	p.threshold = d.timestamp()
	p.delta.liveKeys = d.varint()
	p.delta.versions = d.varint()
	p.delta.bytes = d.varint()
	if d.bad {
		return p, fmt.Errorf("%w: its header is cut off or out of range", errPayload)
	}
	p.batch = d.data
	switch {
	case p.proposer == 0 || p.sequence == 0 || p.base >= p.sequence:
		return p, fmt.Errorf("%w: proposer %d, sequence %d, base %d", errPayload, p.proposer, p.sequence, p.base)
	case len(p.batch) > 0 && len(p.batch) < batchHeaderLength:
		return p, fmt.Errorf("%w: a batch of %d bytes", errPayload, len(p.batch))
	case p.kind == kindThreshold && len(p.batch) > 0:
		return p, fmt.Errorf("%w: a batch where none belongs", errPayload)
	case p.kind != kindThreshold && !p.threshold.IsZero():
		return p, fmt.Errorf("%w: a threshold where none belongs", errPayload)
	}
	return p, nil
}

// A Pebble batch: 8 bytes sequence number (zero here), 4 bytes count, then for each operation its kind, and key and value
// each with its length before it.
const (
	batchHeaderLength = 12
	operationDelete   = 0
	operationSet      = 1
)

// walkBatch calls visit for each operation of a batch. It is strict where Pebble's own reader takes well-formedness for
// granted. value is nil for a deletion.
func walkBatch(batch []byte, visit func(deletion bool, key, value []byte) error) error {
	if len(batch) == 0 {
		return nil
	}
	if len(batch) < batchHeaderLength || binary.LittleEndian.Uint64(batch) != 0 {
		return fmt.Errorf("%w: bad batch header", errPayload)
	}
	count := binary.LittleEndian.Uint32(batch[8:])
	d := decoder{data: batch[batchHeaderLength:]}
	n := uint32(0)
	for ; len(d.data) > 0; n++ {
		kind := d.data[0]
		d.data = d.data[1:]
		key := d.bytes()
		var value []byte
		switch kind {
		case operationSet:
			value = d.bytes()
		case operationDelete:
		default:
			return fmt.Errorf("%w: batch operation of kind %d", errPayload, kind)
		}
		if d.bad || len(key) == 0 {
			return fmt.Errorf("%w: batch operation %d is cut off", errPayload, n)
		}
		if err := visit(kind == operationDelete, key, value); err != nil {
			return err
		}
	}
	if n != count {
		return fmt.Errorf("%w: batch holds %d operations and says %d", errPayload, n, count)
	}
	return nil
}

func appendTimestamp(dst []byte, t hlc.Timestamp) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(t.Wall)), uint64(t.Logical))
}

// decoder takes fields off the front of data. The first that does not fit sets bad, and all after it are zero.
type decoder struct {
	data []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.data)
	// A longer encoding of the same number is refused: what is replicated has one form.
	if n <= 0 || (n > 1 && d.data[n-1] == 0) {
		d.fail()
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

func (d *decoder) timestamp() hlc.Timestamp {
	wall, logical := d.uvarint(), d.uvarint()
	if wall > 1<<63-1 || logical > 1<<32-1 {
		d.fail()
		return hlc.Timestamp{}
	}
	return hlc.Timestamp{Wall: int64(wall), Logical: uint32(logical)}
}

// bytes takes a length and as many bytes; they alias data.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.data)) {
		d.fail()
		return nil
	}
	b := d.data[:n:n]
	d.data = d.data[n:]
	return b
}

func (d *decoder) fail() { d.bad, d.data = true, nil }

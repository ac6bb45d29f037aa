package archive

import (
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Reader returns the records of a piece. It is for one goroutine.
type Reader struct {
	sequence sequence
	// rest has the encoded records that were not read yet. size is the length of all encoded records.
	rest []byte
	size int
	// count is the number of records that the piece claims to have. read is the number of records that
	// Next has returned.
	count, read uint64
	key         []byte
	// failed is the error that ended the reading. Next returns it from then on.
	failed error
	// space is the memory that holds the payload.
	space []byte
}

// Open opens a piece, and checks its checksums. It needs identities only if the piece is encrypted.
// The Reader does not refer to data.
func Open(data []byte, identities Identities) (*Reader, error) {
	r := new(Reader)
	if err := r.Reset(data, identities); err != nil {
		return nil, err
	}
	return r, nil
}

// Reset opens another piece, as Open does, and reuses the memory of the earlier piece: records that
// Next has returned from the earlier piece are no longer valid. The zero Reader can be reset. After
// an error the Reader must be reset before it can be read again.
func (r *Reader) Reset(data []byte, identities Identities) error {
	payload, err := openPayload(data, contentPiece, "piece of records", identities, r.space)
	if err != nil {
		r.failed = err
		return err
	}
	*r = Reader{space: payload}
	r.failed = r.begin(payload)
	return r.failed
}

// begin reads the parts of the payload before and after the records.
func (r *Reader) begin(payload []byte) error {
	length, n := binary.Uvarint(payload)
	if n <= 0 || length > maxHeader || length > uint64(len(payload)-n) {
		return corrupt("the header of the piece is cut off")
	}
	if err := json.Unmarshal(payload[n:n+int(length)], &r.sequence.header); err != nil {
		return corrupt("the header of the piece: %w", err)
	}
	if err := r.sequence.header.check(); err != nil {
		return corrupt("the header of the piece: %w", err)
	}
	r.rest = payload[n+int(length):]
	if len(r.rest) < trailer-checksum {
		return corrupt("the piece has no count of its records")
	}
	end := len(r.rest) - (trailer - checksum)
	r.count = binary.LittleEndian.Uint64(r.rest[end:])
	r.rest = r.rest[:end:end]
	r.size = end
	if r.count > uint64(end) {
		return corrupt("the piece says that it has %d records, in %d bytes", r.count, end)
	}
	return nil
}

// Header says what the piece contains. It must not be changed.
func (r *Reader) Header() Header { return r.sequence.header }

// Count is the number of records that the piece claims to have. Next returns an error if the real
// number differs.
func (r *Reader) Count() int { return int(r.count) }

// Next returns the next record, or io.EOF after the last record. The key is valid until the next
// call. The value is valid until Reset, because it is a slice of the decompressed payload.
func (r *Reader) Next() (Record, error) {
	if r.failed != nil {
		return Record{}, r.failed
	}
	if len(r.rest) == 0 {
		r.failed = io.EOF
		if r.read != r.count {
			r.failed = corrupt("the piece has %d records, and says that it has %d", r.read, r.count)
		}
		return Record{}, r.failed
	}
	at := r.size - len(r.rest)
	record, ok := r.decode()
	if !ok {
		r.failed = corrupt("record %d of %d, at byte %d of the records, cannot be read", r.read+1,
			r.count,
			at)
		return Record{}, r.failed
	}
	if err := r.sequence.check(&record, ErrCorrupt); err != nil {
		r.failed = err
		return Record{}, err
	}
	r.sequence.follow(&record)
	r.read++
	return record, nil
}

// decode removes a record from the front of rest. ok is false if rest has no whole record.
func (r *Reader) decode() (record Record, ok bool) {
	flags := r.rest[0]
	r.rest = r.rest[1:]
	if flags&^flagsKnown != 0 || flags&flagSameKey != 0 && !r.sequence.begun {
		return record, false
	}
	// r.key is a buffer of its own, apart from the key that follow stores in the sequence.
	r.key = append(r.key[:0], r.sequence.key...)
	if flags&flagSameKey == 0 {
		common, ok1 := r.uvarint(uint64(len(r.key)))
		length, ok2 := r.uvarint(MaxKey)
		if !ok1 || !ok2 || length > uint64(len(r.rest)) {
			return record, false
		}
		r.key = append(r.key[:common], r.take(length)...)
	}
	record.Key = r.key
	delta, ok := r.varint()
	if !ok {
		return record, false
	}
	record.Timestamp = hlc.Timestamp{Wall: r.sequence.wall() + delta}
	if flags&flagLogical != 0 {
		logical, ok := r.uvarint(uint64(^uint32(0)))
		if !ok {
			return record, false
		}
		record.Timestamp.Logical = uint32(logical)
	}
	if flags&flagExpiry != 0 {
		delta, ok := r.varint()
		if record.Expiry = record.Timestamp.Wall + delta; !ok || record.Expiry == 0 {
			return record, false
		}
	}
	if flags&flagTombstone != 0 {
		record.Kind = Tombstone
		return record, true
	}
	length, ok := r.uvarint(keys.MaxValueSize)
	if !ok || length > uint64(len(r.rest)) {
		return record, false
	}
	record.Value = r.take(length)
	return record, true
}

// take removes n bytes from the front of rest. rest must have that many bytes.
func (r *Reader) take(n uint64) []byte {
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

// uvarint removes a number from the front of rest. ok is false if there is no number, or if the
// number is above the limit.
func (r *Reader) uvarint(limit uint64) (value uint64, ok bool) {
	value, n := binary.Uvarint(r.rest)
	if n <= 0 || value > limit {
		return 0, false
	}
	r.rest = r.rest[n:]
	return value, true
}

// varint removes a signed number from the front of rest.
func (r *Reader) varint() (value int64, ok bool) {
	value, n := binary.Varint(r.rest)
	if n <= 0 {
		return 0, false
	}
	r.rest = r.rest[n:]
	return value, true
}

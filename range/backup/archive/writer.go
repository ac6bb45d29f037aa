package archive

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

const (
	// flushSize is the number of bytes of payload that a Writer collects before it passes them to the
	// compressor.
	flushSize = 64 << 10
	// trailer is the length of the fields after the records of a piece.
	trailer = 8 + checksum
	// sealReserve is larger than the number of bytes that the compressor and the encryption hold back
	// or add.
	sealReserve = 2 << 20
)

// Writer makes a piece of records. It is for one goroutine.
type Writer struct {
	sealer   *sealer
	sequence sequence
	// pending is the payload that the compressor has not received yet. The checksum covers the payload
	// that the compressor has received.
	pending  []byte
	checksum uint32
	// size is the length of the payload so far.
	size  int
	count uint64
	done  bool
}

// NewWriter begins a piece. Finish or Close must be called.
func NewWriter(h Header, o Options) (*Writer, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, invalid("the header of a piece: %w", err)
	}
	if len(text) > maxHeader {
		return nil, invalid("the header of a piece has %d bytes; %d is the limit", len(text), maxHeader)
	}
	w := &Writer{sequence: sequence{header: h}}
	if w.sealer, err = newSealer(contentPiece, o); err != nil {
		return nil, err
	}
	w.pending = binary.AppendUvarint(make([]byte, 0, flushSize+1<<10), uint64(len(text)))
	w.pending = append(w.pending, text...)
	w.size = len(w.pending)
	return w, nil
}

// Add adds a record, whose key and value it copies. Keys come in ascending order, versions of one
// key in descending order of their timestamps, all within the bounds of the header. ErrFull means
// that nothing was added: finish the piece, and begin another one.
func (w *Writer) Add(r Record) error {
	if w.done {
		return invalid("a record is added to a piece that was finished")
	}
	if err := w.sequence.check(&r, ErrInvalid); err != nil {
		return err
	}
	most := len(r.Key) + len(r.Value) + recordOverhead
	if w.size+most+trailer > MaxPayload || w.SealedSize()+len(w.pending)+most+sealReserve > MaxSealed {
		return fmt.Errorf("%w: the piece has %d bytes, compressed to %d", ErrFull, w.size, w.SealedSize())
	}
	before := len(w.pending)
	w.pending = w.sequence.append(w.pending, &r)
	w.sequence.follow(&r)
	w.size += len(w.pending) - before
	w.count++
	if len(w.pending) >= flushSize {
		return w.flush()
	}
	return nil
}

// append appends the encoding of a record to b, relative to the record before.
func (s *sequence) append(b []byte, r *Record) []byte {
	flags := byte(0)
	if r.Kind == Tombstone {
		flags |= flagTombstone
	}
	if r.Expiry != 0 {
		flags |= flagExpiry
	}
	if r.Timestamp.Logical != 0 {
		flags |= flagLogical
	}
	same := shared(s.key, r.Key)
	if s.begun && same == len(r.Key) && same == len(s.key) {
		b = append(b, flags|flagSameKey)
	} else {
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(same))
		b = binary.AppendUvarint(b, uint64(len(r.Key)-same))
		b = append(b, r.Key[same:]...)
	}
	b = binary.AppendVarint(b, r.Timestamp.Wall-s.wall())
	if r.Timestamp.Logical != 0 {
		b = binary.AppendUvarint(b, uint64(r.Timestamp.Logical))
	}
	if r.Expiry != 0 {
		b = binary.AppendVarint(b, r.Expiry-r.Timestamp.Wall)
	}
	if r.Kind == Value {
		b = binary.AppendUvarint(b, uint64(len(r.Value)))
		b = append(b, r.Value...)
	}
	return b
}

// flush passes the pending payload to the compressor.
func (w *Writer) flush() error {
	w.checksum = crc32.Update(w.checksum, castagnoli, w.pending)
	_, err := w.sealer.Write(w.pending)
	w.pending = w.pending[:0]
	if cap(w.pending) > 16*flushSize {
		w.pending = make([]byte, 0, flushSize+1<<10) // a large value has made it large
	}
	return err
}

// Size is the length of the payload so far, before compression.
func (w *Writer) Size() int { return w.size }

// SealedSize is the length of the sealed piece so far. Bytes that the compressor still holds back
// are not counted.
func (w *Writer) SealedSize() int { return w.sealer.sealed.Len() }

// Count is the number of records that were added.
func (w *Writer) Count() int { return int(w.count) }

// Finish returns the sealed piece, and its Sum. The Writer cannot be used afterwards.
func (w *Writer) Finish() ([]byte, Sum, error) {
	if w.done {
		return nil, Sum{}, invalid("a piece is finished twice")
	}
	defer w.Close()
	w.pending = binary.LittleEndian.AppendUint64(w.pending, w.count)
	if err := w.flush(); err != nil {
		return nil, Sum{}, err
	}
	w.pending = binary.LittleEndian.AppendUint32(w.pending, w.checksum)
	if err := w.flush(); err != nil {
		return nil, Sum{}, err
	}
	return w.sealer.finish()
}

// Close discards a piece that is not finished. After Finish it does nothing.
func (w *Writer) Close() {
	w.done = true
	w.sealer.release()
}

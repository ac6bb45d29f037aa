package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// pairReader reads the pairs of a snapshot, and verifies its checksums and counts.
type pairReader struct {
	r             io.Reader
	content       []byte
	blocks, pairs uint64
}

func (s *pairReader) header() (index, term uint64, err error) {
	b := make([]byte, len(magic)+1+tables.AppliedLength+4)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return 0, 0, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	n := len(b) - 4
	switch {
	case crc32.Checksum(b[:n], crcTable) != binary.BigEndian.Uint32(b[n:]) ||
		string(b[:4]) != magic:
		return 0, 0, fmt.Errorf("%w: its header is", ErrDamaged)
	case b[4] != format:
		return 0, 0, fmt.Errorf("the snapshot of the core's store has format %d, this version "+
			"knows %d: a newer version wrote it", b[4], format)
	}
	return tables.DecodeApplied(b[5:n])
}

// next returns the next pair, whose key is without the local prefix, or io.EOF after a valid
// trailer. Both are valid until the next call.
func (s *pairReader) next() (key, value []byte, err error) {
	if len(s.content) == 0 {
		if err := s.block(); err != nil {
			return nil, nil, err
		}
	}
	keyLength, n := binary.Uvarint(s.content)
	if n <= 0 {
		return nil, nil, fmt.Errorf("%w: pair %d", ErrDamaged, s.pairs)
	}
	valueLength, m := binary.Uvarint(s.content[n:])
	rest := s.content[n+max(m, 0):]
	if m <= 0 || keyLength > uint64(len(rest)) || valueLength > uint64(len(rest))-keyLength {
		return nil, nil, fmt.Errorf("%w: pair %d", ErrDamaged, s.pairs)
	}
	key, value = rest[:keyLength], rest[keyLength:keyLength+valueLength]
	s.content = rest[keyLength+valueLength:]
	s.pairs++
	return key, value, nil
}

func (s *pairReader) block() error {
	var head [8]byte
	if _, err := io.ReadFull(s.r, head[:4]); err != nil {
		return fmt.Errorf("%w: it ends after %d pairs: %w", ErrDamaged, s.pairs, noEOF(err))
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size == 0 {
		return s.trailer()
	}
	if size > maxBlock {
		return fmt.Errorf("%w: block %d claims %d bytes", ErrDamaged, s.blocks, size)
	}
	if _, err := io.ReadFull(s.r, head[4:]); err != nil {
		return fmt.Errorf("%w: it ends after %d pairs: %w", ErrDamaged, s.pairs, noEOF(err))
	}
	// The buffer grows as bytes arrive, so that a false length costs no memory.
	var buffer bytes.Buffer
	if _, err := io.CopyN(&buffer, s.r, int64(size)); err != nil {
		return fmt.Errorf("%w: it ends after %d pairs: %w", ErrDamaged, s.pairs, noEOF(err))
	}
	s.content = buffer.Bytes()
	if blockSum(s.content, s.blocks) != binary.BigEndian.Uint32(head[4:]) {
		return fmt.Errorf("%w: the sum of block %d is wrong", ErrDamaged, s.blocks)
	}
	s.blocks++
	return nil
}

func (s *pairReader) trailer() error {
	var b [20]byte
	if _, err := io.ReadFull(s.r, b[:]); err != nil {
		return fmt.Errorf("%w: trailer: %w", ErrDamaged, noEOF(err))
	}
	if crc32.Checksum(b[:16], crcTable) != binary.BigEndian.Uint32(b[16:]) ||
		binary.BigEndian.Uint64(b[:]) != s.blocks || binary.BigEndian.Uint64(b[8:]) != s.pairs {
		return fmt.Errorf("%w: the trailer does not fit", ErrDamaged)
	}
	if n, err := io.ReadFull(s.r, b[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the trailer", ErrDamaged)
	}
	return io.EOF
}

// noEOF turns io.EOF into io.ErrUnexpectedEOF, so that a truncated stream does not look complete.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Pairs receives the pairs of a snapshot; engine.TableWriter implements it.
type Pairs interface{ Set(key, value []byte) error }

// Copy writes the pairs of a snapshot to w, and returns the record of members among them, nil if
// there is none. ErrDamaged means that the stream is damaged, or is not a snapshot of a store with
// that layout and with that applied entry. After an error the written pairs must be discarded.
func Copy(
	ctx context.Context, r io.Reader, w Pairs, l *tables.Layout, index, term uint64,
) (members *storepb.Members, err error) {
	in := &pairReader{r: r}
	gotIndex, gotTerm, err := in.header()
	if err != nil {
		return nil, err
	}
	if gotIndex != index || gotTerm != term {
		return nil, fmt.Errorf("%w: it is of index %d at term %d, announced was index %d at term %d",
			ErrDamaged, gotIndex, gotTerm, index, term)
	}
	prefix := l.Prefix()
	hasApplied := false
	for last := []byte(nil); ; {
		key, value, err := in.next()
		if errors.Is(err, io.EOF) && !errors.Is(err, ErrDamaged) {
			break
		}
		if err != nil {
			return nil, err
		}
		full := append(bytes.Clone(prefix), key...)
		if err := l.CheckPair(full, value, last); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if bytes.Equal(full, l.Applied) {
			hasApplied = bytes.Equal(value, tables.EncodeApplied(index, term))
		}
		if bytes.Equal(full, l.Members) {
			if members, err = command.DecodeMembers(value); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
			}
		}
		last = full
		if err := w.Set(full, value); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	if !hasApplied {
		return nil, fmt.Errorf("%w: its applied index is not that of its header", ErrDamaged)
	}
	return members, nil
}

package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// ErrMalformed is wrapped by every error about a snapshot's content.
var ErrMalformed = errors.New("malformed snapshot")

// reader reads a snapshot's records. All lengths are checked before memory is taken for
// them.
type reader struct {
	r     *bufio.Reader
	sum   uint32
	count uint64
	last  []byte
	key   []byte
	value []byte
}

// header is the head of a snapshot.
type header struct {
	partition   keys.PartitionID
	index, term uint64
}

func newReader(r io.Reader) *reader {
	return &reader{r: bufio.NewReaderSize(r, 64<<10)}
}

// cut turns a premature end of the stream into an error that says so.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", ErrMalformed)
	}
	return err
}

func (s *reader) full(b []byte) error {
	if _, err := io.ReadFull(s.r, b); err != nil {
		return cut(err)
	}
	s.sum = crc32.Update(s.sum, castagnoli, b)
	return nil
}

// ReadByte is for binary.ReadUvarint.
func (s *reader) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return 0, cut(err)
	}
	s.sum = crc32.Update(s.sum, castagnoli, []byte{b})
	return b, nil
}

func (s *reader) header() (h header, err error) {
	var b [len(magic) + 1 + 24]byte
	if err := s.full(b[:]); err != nil {
		return h, err
	}
	if string(b[:len(magic)]) != magic {
		return h, fmt.Errorf("%w: it does not begin like one", ErrMalformed)
	}
	if v := b[len(magic)]; v != version {
		return h, fmt.Errorf("%w: version %d, this server understands %d", ErrMalformed, v,
			version)
	}
	rest := b[len(magic)+1:]
	return header{
		keys.PartitionID(binary.BigEndian.Uint64(rest)), binary.BigEndian.Uint64(rest[8:]),
		binary.BigEndian.Uint64(rest[16:]),
	}, nil
}

// next reads a record into key and value, which are valid until the next call. ok is false at the
// end, if the checksums are right.
func (s *reader) next() (ok bool, err error) {
	keyLength, err := binary.ReadUvarint(s)
	if err != nil {
		return false, err
	}
	if keyLength == 0 {
		return false, s.trailer()
	}
	valueLength, err := binary.ReadUvarint(s)
	if err != nil {
		return false, err
	}
	if keyLength > maxKey || valueLength > maxValue {
		return false, fmt.Errorf("%w: a record of %d and %d bytes", ErrMalformed, keyLength, valueLength)
	}
	s.last, s.key = s.key, s.last
	if s.key, err = s.take(s.key, keyLength); err != nil {
		return false, err
	}
	if s.value, err = s.take(s.value, valueLength); err != nil {
		return false, err
	}
	s.count++
	return true, nil
}

func (s *reader) take(into []byte, n uint64) ([]byte, error) {
	if uint64(cap(into)) < n {
		into = make([]byte, n)
	}
	into = into[:n]
	return into, s.full(into)
}

func (s *reader) trailer() error {
	var b [8]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	want := s.sum
	var sum [4]byte
	if err := s.full(sum[:]); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint64(b[:]); n != s.count {
		return fmt.Errorf("%w: it has %d records and says %d", ErrMalformed, s.count, n)
	}
	if binary.BigEndian.Uint32(sum[:]) != want {
		return fmt.Errorf("%w: its sum is wrong; it was damaged on the way", ErrMalformed)
	}
	if _, err := s.r.ReadByte(); err == nil {
		return fmt.Errorf("%w: there is something behind its end", ErrMalformed)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

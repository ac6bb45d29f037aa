package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// errSnapshot is what every complaint about a snapshot's content wraps.
var errSnapshot = errors.New("malformed snapshot")

// snapshotReader reads a snapshot's records. All lengths are checked before memory is taken for
// them.
type snapshotReader struct {
	r     *bufio.Reader
	sum   uint32
	count uint64
	last  []byte
	key   []byte
	value []byte
}

// snapshotHeader is what a snapshot says of itself.
type snapshotHeader struct {
	partition   keys.PartitionID
	index, term uint64
}

func newSnapshotReader(r io.Reader) *snapshotReader {
	return &snapshotReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// cut turns the end of the stream, where there should be more, into an error that says so.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", errSnapshot)
	}
	return err
}

func (s *snapshotReader) full(b []byte) error {
	if _, err := io.ReadFull(s.r, b); err != nil {
		return cut(err)
	}
	s.sum = crc32.Update(s.sum, castagnoli, b)
	return nil
}

// ReadByte is for binary.ReadUvarint.
func (s *snapshotReader) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return 0, cut(err)
	}
	s.sum = crc32.Update(s.sum, castagnoli, []byte{b})
	return b, nil
}

func (s *snapshotReader) header() (h snapshotHeader, err error) {
	var b [len(snapshotMagic) + 1 + 24]byte
	if err := s.full(b[:]); err != nil {
		return h, err
	}
	if string(b[:len(snapshotMagic)]) != snapshotMagic {
		return h, fmt.Errorf("%w: it does not begin like one", errSnapshot)
	}
	if v := b[len(snapshotMagic)]; v != snapshotVersion {
		return h, fmt.Errorf("%w: version %d, this server understands %d", errSnapshot, v,
			snapshotVersion)
	}
	rest := b[len(snapshotMagic)+1:]
	return snapshotHeader{
		keys.PartitionID(binary.BigEndian.Uint64(rest)), binary.BigEndian.Uint64(rest[8:]),
		binary.BigEndian.Uint64(rest[16:]),
	}, nil
}

// next reads a record into key and value, which are valid until the next call. ok is false at the
// end, when the sums were right.
func (s *snapshotReader) next() (ok bool, err error) {
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
	if keyLength > maxSnapshotKey || valueLength > maxSnapshotValue {
		return false, fmt.Errorf("%w: a record of %d and %d bytes", errSnapshot, keyLength, valueLength)
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

func (s *snapshotReader) take(into []byte, n uint64) ([]byte, error) {
	if uint64(cap(into)) < n {
		into = make([]byte, n)
	}
	into = into[:n]
	return into, s.full(into)
}

func (s *snapshotReader) trailer() error {
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
		return fmt.Errorf("%w: it has %d records and says %d", errSnapshot, s.count, n)
	}
	if binary.BigEndian.Uint32(sum[:]) != want {
		return fmt.Errorf("%w: its sum is wrong; it was damaged on the way", errSnapshot)
	}
	if _, err := s.r.ReadByte(); err == nil {
		return fmt.Errorf("%w: there is something behind its end", errSnapshot)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

package replica

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A snapshot is a stream:
//
//	"TIDEMARK" version(1) partition(8) index(8) term(8)           big endian
//	key length, value length (uvarint each), key, value           for each record, keys ascending
//	0                                                             one byte, the end of the records
//	number of records(8) CRC-32C of all before(4)                 big endian
//
// The records are the state keys of the partition's local, anchor and data spans, as they are.
const (
	snapshotMagic   = "TIDEMARK"
	snapshotVersion = 1
	// What a record may be at most: a key with prefix, escaping, timestamp; a value with its
	// header, which for a lock has a key in it, or a transaction record with all its participants.
	maxSnapshotKey   = 4 * keys.MaxKeySize
	maxSnapshotValue = 12 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshot is a consistent state on its way out.
type snapshot struct {
	r       *Replica
	state   *engine.Snapshot
	applied storage.Record
	// descriptor is of the same moment.
	descriptor *clusterpb.Partition
}

var _ group.Snapshot = (*snapshot)(nil)

// Snapshot returns a handle of the state as it is now. It may run beside Apply.
func (r *Replica) Snapshot() (group.Snapshot, error) {
	if !r.enter() {
		return nil, ErrClosed
	}
	s, err := r.snapshot()
	if err != nil {
		r.exit()
		return nil, fmt.Errorf("snapshot of partition %s: %w", r.id, err)
	}
	return s, nil
}

func (r *Replica) snapshot() (*snapshot, error) {
	state, err := r.state.NewSnapshot()
	if err != nil {
		return nil, err
	}
	applied, found, err := storage.ReadApplied(state, r.id)
	if err == nil && !found {
		err = errors.New("it has no applied record")
	}
	var descriptor *clusterpb.Partition
	if err == nil {
		descriptor, err = storage.ReadDescriptor(state, r.id)
	}
	if err != nil {
		_ = state.Close()
		return nil, err
	}
	return &snapshot{r, state, applied, descriptor}, nil
}

func (s *snapshot) Index() uint64 { return s.applied.Index }
func (s *snapshot) Term() uint64  { return s.applied.Term }

// Close releases the handle. It is called once.
func (s *snapshot) Close() error {
	defer s.r.exit()
	return s.state.Close()
}

// Write streams the state.
func (s *snapshot) Write(ctx context.Context, w io.Writer) error {
	if err := s.write(ctx, w); err != nil {
		return fmt.Errorf("writing a snapshot of partition %s: %w", s.r.id, err)
	}
	return nil
}

func (s *snapshot) write(ctx context.Context, w io.Writer) error {
	out := summer{w: bufio.NewWriterSize(w, 64<<10)}
	header := append([]byte(snapshotMagic), snapshotVersion)
	for _, v := range [...]uint64{uint64(s.r.id), s.applied.Index, s.applied.Term} {
		header = binary.BigEndian.AppendUint64(header, v)
	}
	out.write(header)
	count := uint64(0)
	for _, span := range storage.Spans(s.r.id, keys.PartitionSpan(s.descriptor)) {
		n, err := s.writeSpan(ctx, &out, span)
		if err != nil {
			return err
		}
		count += n
	}
	out.write([]byte{0})
	out.write(binary.BigEndian.AppendUint64(nil, count))
	out.write(binary.BigEndian.AppendUint32(nil, out.sum))
	if out.err != nil {
		return out.err
	}
	return out.w.Flush()
}

func (s *snapshot) writeSpan(ctx context.Context, out *summer, span keys.Span) (count uint64,
	err error) {
	var lengths []byte
	err = storage.Each(s.state, span, func(i *pebble.Iterator) (bool, error) {
		if count%256 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		value, err := i.ValueAndErr()
		if err != nil {
			return false, err
		}
		lengths = binary.AppendUvarint(lengths[:0], uint64(len(i.Key())))
		lengths = binary.AppendUvarint(lengths, uint64(len(value)))
		out.write(lengths)
		out.write(i.Key())
		out.write(value)
		count++
		return true, out.err
	})
	return count, err
}

// summer writes and sums up. After an error it does nothing more.
type summer struct {
	w   *bufio.Writer
	sum uint32
	err error
}

func (s *summer) write(b []byte) {
	if s.err != nil {
		return
	}
	s.sum = crc32.Update(s.sum, castagnoli, b)
	_, s.err = s.w.Write(b)
}

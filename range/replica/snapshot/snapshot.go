package snapshot

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
	magic   = "TIDEMARK"
	version = 1
	// The greatest sizes of a record: a key with prefix, escaping and timestamp; a value with its
	// header, which for a lock has a key in it, or a transaction record with all its participants.
	maxKey   = 4 * keys.MaxKeySize
	maxValue = 12 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot is a consistent state of a partition on its way out.
type Snapshot struct {
	id      keys.PartitionID
	state   *engine.Snapshot
	applied storage.Record
	// descriptor is that of the same engine snapshot.
	descriptor *clusterpb.Partition
	// release is called when the handle is closed.
	release func()
}

var _ group.Snapshot = (*Snapshot)(nil)

// Take returns a handle of the present state of a partition in a state database. release is called
// when the handle is closed, and not if there is an error.
func Take(from *engine.State, id keys.PartitionID, release func()) (*Snapshot, error) {
	state, err := from.NewSnapshot()
	if err != nil {
		return nil, err
	}
	applied, found, err := storage.ReadApplied(state, id)
	if err == nil && !found {
		err = errors.New("it has no applied record")
	}
	var descriptor *clusterpb.Partition
	if err == nil {
		descriptor, err = storage.ReadDescriptor(state, id)
	}
	if err != nil {
		_ = state.Close()
		return nil, err
	}
	return &Snapshot{id, state, applied, descriptor, release}, nil
}

func (s *Snapshot) Index() uint64 { return s.applied.Index }
func (s *Snapshot) Term() uint64  { return s.applied.Term }

// Configuration implements group.Configured: it is of the same engine snapshot as the data.
func (s *Snapshot) Configuration() group.Configuration {
	return group.ConfigurationOf(s.descriptor)
}

// Close releases the handle. It is called once.
func (s *Snapshot) Close() error {
	defer s.release()
	return s.state.Close()
}

// Write streams the state.
func (s *Snapshot) Write(ctx context.Context, w io.Writer) error {
	if err := s.write(ctx, w); err != nil {
		return fmt.Errorf("writing a snapshot of partition %s: %w", s.id, err)
	}
	return nil
}

func (s *Snapshot) write(ctx context.Context, w io.Writer) error {
	out := summer{w: bufio.NewWriterSize(w, 64<<10)}
	header := append([]byte(magic), version)
	for _, v := range [...]uint64{uint64(s.id), s.applied.Index, s.applied.Term} {
		header = binary.BigEndian.AppendUint64(header, v)
	}
	out.write(header)
	count := uint64(0)
	for _, span := range storage.Spans(s.id, keys.PartitionSpan(s.descriptor)) {
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

func (s *Snapshot) writeSpan(ctx context.Context, out *summer, span keys.Span) (count uint64,
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

// summer writes and keeps the checksum. After an error it does nothing more.
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

package replica

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// replicatedSpans are all state keys that belong to a partition, in ascending order.
func replicatedSpans(id keys.PartitionID, span keys.Span) [3]keys.Span {
	return [...]keys.Span{keys.LocalSpan(id), keys.AnchorSpan(span), keys.DataSpan(span)}
}

// Checksum is a sum over everything that is replicated, and the applied index that it is of.
// Replicas with the same index have the same sum (DESIGN invariant 2). It reads the whole
// partition.
func (r *Replica) Checksum() (index, sum uint64, err error) {
	if !r.enter() {
		return 0, 0, ErrClosed
	}
	defer r.exit()
	snapshot, err := r.state.NewSnapshot()
	if err != nil {
		return 0, 0, fmt.Errorf("partition %s: %w", r.id, err)
	}
	defer snapshot.Close()
	applied, _, err := readApplied(snapshot, r.id)
	if err != nil {
		return 0, 0, err
	}
	descriptor, err := readDescriptor(snapshot, r.id)
	if err != nil {
		return 0, 0, err
	}
	h := fnv.New64a()
	for _, span := range replicatedSpans(r.id, keys.PartitionSpan(descriptor)) {
		if err := sumSpan(h, snapshot, span); err != nil {
			return 0, 0, fmt.Errorf("partition %s: %w", r.id, err)
		}
	}
	return applied.index, h.Sum64(), nil
}

func sumSpan(h hash.Hash, r engine.Reader, span keys.Span) (err error) {
	i, err := r.NewIter(&pebble.IterOptions{LowerBound: span.Start, UpperBound: span.End})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := i.Close(); err == nil {
			err = closeErr
		}
	}()
	var lengths [16]byte
	for i.First(); i.Valid(); i.Next() {
		value, err := i.ValueAndErr()
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(lengths[:8], uint64(len(i.Key())))
		binary.LittleEndian.PutUint64(lengths[8:], uint64(len(value)))
		h.Write(lengths[:])
		h.Write(i.Key())
		h.Write(value)
	}
	return i.Error()
}

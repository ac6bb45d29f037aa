package storage

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Checksum returns a sum over all replicated data of a partition, and the applied index of that
// data. Replicas with the same index have the same sum. It reads the whole partition.
func Checksum(state *engine.State, id keys.PartitionID) (index, sum uint64, err error) {
	snapshot, err := state.NewSnapshot()
	if err != nil {
		return 0, 0, fmt.Errorf("partition %s: %w", id, err)
	}
	defer snapshot.Close()
	applied, _, err := ReadApplied(snapshot, id)
	if err != nil {
		return 0, 0, err
	}
	descriptor, err := ReadDescriptor(snapshot, id)
	if err != nil {
		return 0, 0, err
	}
	h := fnv.New64a()
	var lengths [16]byte
	for _, span := range Spans(id, keys.PartitionSpan(descriptor)) {
		err := Each(snapshot, span, func(i *pebble.Iterator) (bool, error) {
			value, err := i.ValueAndErr()
			if err != nil {
				return false, err
			}
			binary.LittleEndian.PutUint64(lengths[:8], uint64(len(i.Key())))
			binary.LittleEndian.PutUint64(lengths[8:], uint64(len(value)))
			h.Write(lengths[:])
			h.Write(i.Key())
			h.Write(value)
			return true, nil
		})
		if err != nil {
			return 0, 0, fmt.Errorf("partition %s: %w", id, err)
		}
	}
	return applied.Index, h.Sum64(), nil
}

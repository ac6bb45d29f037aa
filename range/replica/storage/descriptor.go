package storage

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// errNone is wrapped with ErrRecord if there is no record.
var errNone = errors.New("there is none")

// ReadDescriptor reads the descriptor of a partition.
func ReadDescriptor(r engine.Reader, id keys.PartitionID) (*clusterpb.Partition, error) {
	value, closer, err := r.Get(keys.LocalKey(id, keys.SuffixDescriptor))
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = fmt.Errorf("%w: %w", ErrRecord, errNone)
		}
		return nil, fmt.Errorf("partition %s: reading the descriptor: %w", id, err)
	}
	defer closer.Close()
	return DecodeDescriptor(id, value)
}

func DecodeDescriptor(id keys.PartitionID, value []byte) (*clusterpb.Partition, error) {
	p := &clusterpb.Partition{}
	if err := proto.Unmarshal(value, p); err != nil {
		return nil, fmt.Errorf("partition %s: decoding the descriptor: %w: %w", id, ErrRecord, err)
	}
	if err := keys.ValidatePartition(p); err != nil {
		return nil, err
	}
	if keys.PartitionID(p.Id) != id {
		return nil, fmt.Errorf("partition %s: its descriptor says it is %s", id, keys.PartitionID(p.Id))
	}
	return p, nil
}

// WriteDescriptor makes a new partition: its descriptor, and nothing applied.
func WriteDescriptor(state *engine.State, p *clusterpb.Partition) error {
	id := keys.PartitionID(p.Id)
	value, err := proto.Marshal(p)
	if err != nil {
		return fmt.Errorf("partition %s: encoding the descriptor: %w", id, err)
	}
	b := state.NewBatch()
	defer b.Close()
	if err := b.Set(keys.LocalKey(id, keys.SuffixDescriptor), value, nil); err != nil {
		return err
	}
	if err := b.Set(keys.LocalKey(id, keys.SuffixApplied), (&Record{}).Append(nil),
		nil); err != nil {
		return err
	}
	return state.Commit(b)
}

// Empty returns the descriptor of a replica that is to be filled: it belongs to the partition, and
// knows no replicas, itself included. It grants no vote, and a snapshot replaces it.
func Empty(d *clusterpb.Partition) *clusterpb.Partition {
	e := proto.Clone(d).(*clusterpb.Partition)
	e.Replicas, e.Generation, e.Membership = nil, 0, 0
	return e
}

// IsEmpty reports whether a replica with a descriptor is yet to be filled.
func IsEmpty(d *clusterpb.Partition) bool { return d.Membership == 0 && len(d.Replicas) == 0 }

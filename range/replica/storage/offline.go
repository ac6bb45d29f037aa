package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Functions of tools for the state of a stopped server.

// Recorded is what a state database records of a partition.
type Recorded struct {
	Descriptor *clusterpb.Partition
	// Index and Term are those of the last applied entry.
	Index, Term uint64
	Stats       Stats
	// Closed is the closed timestamp: nothing is written at or below it any more.
	Closed hlc.Timestamp
}

// ReadRecorded reads it; false if the state has no record of the partition.
func ReadRecorded(state engine.Reader, id keys.PartitionID) (Recorded, bool, error) {
	a, ok, err := ReadApplied(state, id)
	if err != nil || !ok {
		return Recorded{}, false, err
	}
	d, err := ReadDescriptor(state, id)
	return Recorded{Descriptor: d, Index: a.Index, Term: a.Term, Stats: a.Stats,
		Closed: a.Closed}, err == nil, err
}

// ReplaceDescriptors overwrites the descriptors of partitions, all or none. No replica of these
// partitions may be open. The change is durable with the next flush.
func ReplaceDescriptors(state *engine.State, descriptors ...*clusterpb.Partition) error {
	b := state.NewBatch()
	defer b.Close()
	for _, d := range descriptors {
		id := keys.PartitionID(d.GetId())
		if err := keys.ValidatePartition(d); err != nil {
			return err
		}
		value, err := proto.Marshal(d)
		if err != nil {
			return fmt.Errorf("partition %s: encoding the descriptor: %w", id, err)
		}
		if err := b.Set(keys.LocalKey(id, keys.SuffixDescriptor), value, nil); err != nil {
			return err
		}
	}
	return state.Commit(b)
}

// DeleteOwn deletes, durably, what is stored by the ids of partitions in a state database. No
// replica of them is open.
func DeleteOwn(state *engine.State, ids ...keys.PartitionID) error {
	b := state.NewBatch()
	defer b.Close()
	for _, id := range ids {
		if err := DeleteLocal(b, id); err != nil {
			return err
		}
	}
	if err := state.Commit(b); err != nil {
		return err
	}
	return state.Flush()
}

// DescriptorIn returns the descriptor that an entry of a partition's log sets if it takes effect;
// nil if it sets none.
func DescriptorIn(id keys.PartitionID, data []byte) (*clusterpb.Partition, error) {
	if len(data) == 0 {
		return nil, nil
	}
	p, err := proposal.Decode(data)
	if err != nil || p.Kind != proposal.KindDescriptor && p.Kind != proposal.KindSplit &&
		p.Kind != proposal.KindFreeze && p.Kind != proposal.KindMerge {
		return nil, err
	}
	var found *clusterpb.Partition
	own := keys.LocalKey(id, keys.SuffixDescriptor)
	err = proposal.WalkBatch(p.Batch, func(_ bool, key, value []byte) (err error) {
		if bytes.Equal(key, own) {
			found, err = DecodeDescriptor(id, value)
		}
		return err
	})
	return found, err
}

// EachRecorded calls visit for the records of each partition in a state database, by id; err is why
// a record cannot be read.
func EachRecorded(state engine.Reader, visit func(id keys.PartitionID, r Recorded, err error)) (
	err error) {
	bounds := keys.LocalKeys()
	i, err := state.NewIter(&pebble.IterOptions{LowerBound: bounds.Start, UpperBound: bounds.End})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := i.Close(); err == nil {
			err = closeErr
		}
	}()
	for ok := i.First(); ok; {
		id, _, err := keys.DecodeLocalKey(i.Key())
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRecord, err)
		}
		if r, found, err := ReadRecorded(state, id); found || err != nil {
			visit(id, r, err)
		}
		ok = i.SeekGE(keys.LocalSpan(id).End)
	}
	return i.Error()
}

// RecordedSpan returns the span that a partition has in a state database; nil if it has none.
func RecordedSpan(state engine.Reader, id keys.PartitionID) (*keys.Span, error) {
	d, err := ReadDescriptor(state, id)
	switch {
	case errors.Is(err, errNone):
		return nil, nil
	case err != nil:
		return nil, err
	}
	span := keys.PartitionSpan(d)
	return &span, nil
}

// Recount counts the content of a partition, to compare with its record.
func Recount(ctx context.Context, state engine.Reader, id keys.PartitionID) (recorded Recorded,
	counted Stats, err error) {
	recorded, found, err := ReadRecorded(state, id)
	if err != nil || !found {
		return recorded, counted, err
	}
	counted, err = CountVersions(state, keys.PartitionSpan(recorded.Descriptor), ctx.Err)
	return recorded, counted, err
}

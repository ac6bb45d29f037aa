package reshape

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ChildState says what applying a split does for the child on this node.
type ChildState int

const (
	// Created: a replica of the child is made of the parent's data, with the parent's replica id.
	Created ChildState = iota
	// Elsewhere: the child's replica was removed from this node before, or a newer replica of the
	// child is here and waits for a snapshot. The parent's data of the child is removed.
	Elsewhere
	// Kept: a replica of the child is here that has the child's data, or newer data.
	Kept
)

// Split is an entry by which a partition splits.
type Split struct {
	Left, Right *clusterpb.Partition
	// ChildState is set by Stage.
	ChildState ChildState
	// stats are those of the child.
	stats storage.Stats
}

// DecodeSplit reads an entry by which the partition splits, and checks it. change is set if the
// entry is marked as one that changes the replicas.
func DecodeSplit(now *clusterpb.Partition, p *proposal.Entry, change bool) (*Split, error) {
	s := &Split{}
	id, child := keys.PartitionID(now.Id), keys.PartitionID(0)
	err := proposal.WalkBatch(p.Batch, func(deletion bool, key, value []byte) (err error) {
		of, suffix, err := keys.DecodeLocalKey(key)
		switch {
		case deletion || err != nil:
			return fmt.Errorf("%s in a split", keys.PrettyState(key))
		case of == id && suffix == keys.SuffixDescriptor && s.Left == nil:
			s.Left, err = storage.DecodeDescriptor(id, value)
		case of != id && suffix == keys.SuffixDescriptor && s.Right == nil:
			child = of
			s.Right, err = storage.DecodeDescriptor(of, value)
		case of != id && of == child && suffix == keys.SuffixApplied:
			var a storage.Record
			a, err = storage.DecodeApplied(value)
			s.stats = a.Stats
		default:
			err = fmt.Errorf("%s in a split", keys.PrettyState(key))
		}
		return err
	})
	if err == nil {
		if s.Left == nil || s.Right == nil || change {
			err = fmt.Errorf("a split without both parts, or that changes replicas: %v", change)
		} else {
			err = CheckSplit(now, s.Left, s.Right)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
	}
	return s, nil
}

// Stage adds the effects of a split to a batch. applied is the parent's record after the entry.
// childState decides what the split does for the child on this node.
func (s *Split) Stage(batch *engine.StateBatch, applied *storage.Record,
	childState func(child *clusterpb.Partition) (ChildState, error)) (err error) {
	s.Right.SplitIndex = applied.Index
	if s.ChildState, err = childState(s.Right); err != nil {
		return err
	}
	left, err := proto.Marshal(s.Left)
	if err != nil {
		return err
	}
	if err := batch.Set(keys.LocalKey(keys.PartitionID(s.Left.Id), keys.SuffixDescriptor), left,
		nil); err != nil {
		return err
	}
	id, span := keys.PartitionID(s.Right.Id), keys.PartitionSpan(s.Right)
	switch s.ChildState {
	case Kept:
		return nil
	case Elsewhere:
		for _, gone := range [...]keys.Span{keys.AnchorSpan(span), keys.DataSpan(span)} {
			if err := batch.DeleteRange(gone.Start, gone.End, nil); err != nil {
				return err
			}
		}
		return nil
	}
	right, err := proto.Marshal(s.Right)
	if err != nil {
		return err
	}
	if err := batch.Set(keys.LocalKey(id, keys.SuffixDescriptor), right, nil); err != nil {
		return err
	}
	// INVARIANT: the parent's promises hold for the child: nothing is written at or below the
	// closed timestamp, nor read below the threshold.
	base := storage.Record{Index: ChildIndex, Term: ChildTerm, Highest: applied.Highest,
		Closed: applied.Closed, Threshold: applied.Threshold, Stats: s.stats}
	return batch.Set(keys.LocalKey(id, keys.SuffixApplied), base.Append(nil), nil)
}

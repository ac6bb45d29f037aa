package replica

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Birth is what applying a split does for the child on this node.
type Birth int

const (
	// Born: a replica of it is made of what the parent's has, with the same replica id.
	Born Birth = iota
	// Elsewhere: that replica was removed from this node before, or a newer one of the child is here
	// that waits for a snapshot. What the parent has of it is removed.
	Elsewhere
	// Kept: a replica of the child is here that has what the child has, or more.
	Kept
)

// split is an entry by which a partition splits.
type split struct {
	left, right *clusterpb.Partition
	// stats are the child's.
	stats storage.Stats
	birth Birth
}

// splits takes in an entry by which the partition splits.
func (c *changes) splits(now *clusterpb.Partition, p *proposal.Entry, change bool) error {
	s := &split{}
	id, child := keys.PartitionID(now.Id), keys.PartitionID(0)
	err := proposal.WalkBatch(p.Batch, func(deletion bool, key, value []byte) (err error) {
		of, suffix, err := keys.DecodeLocalKey(key)
		switch {
		case deletion || err != nil:
			return fmt.Errorf("%s in a split", keys.PrettyState(key))
		case of == id && suffix == keys.SuffixDescriptor && s.left == nil:
			s.left, err = storage.DecodeDescriptor(id, value)
		case of != id && suffix == keys.SuffixDescriptor && s.right == nil:
			child = of
			s.right, err = storage.DecodeDescriptor(of, value)
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
		if s.left == nil || s.right == nil || change {
			err = fmt.Errorf("a split without both parts, or that changes replicas: %v", change)
		} else {
			err = checkSplit(now, s.left, s.right)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
	}
	c.descriptor, c.split = s.left, s
	return nil
}

// stageChild adds the effects of a split to a batch. applied is the parent's, as of the entry.
func (r *Replica) stageChild(batch *engine.StateBatch, applied *storage.Record, s *split) error {
	s.right.SplitIndex = applied.Index
	if r.node.Bear != nil {
		birth, err := r.node.Bear(s.right, r.self)
		if err != nil {
			return err
		}
		s.birth = birth
	}
	left, err := s.left.MarshalVT()
	if err != nil {
		return err
	}
	if err := batch.Set(keys.LocalKey(r.id, keys.SuffixDescriptor), left, nil); err != nil {
		return err
	}
	id, span := keys.PartitionID(s.right.Id), keys.PartitionSpan(s.right)
	switch s.birth {
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
	right, err := s.right.MarshalVT()
	if err != nil {
		return err
	}
	if err := batch.Set(keys.LocalKey(id, keys.SuffixDescriptor), right, nil); err != nil {
		return err
	}
	// INVARIANT: what was promised before goes on for the child: nothing is written at or below what
	// is closed, nor read below the threshold.
	base := storage.Record{Index: bornIndex, Term: bornTerm, Highest: applied.Highest,
		Closed: applied.Closed, Threshold: applied.Threshold, Stats: s.stats}
	return batch.Set(keys.LocalKey(id, keys.SuffixApplied), base.Append(nil), nil)
}

// bear tells the node of the child, which lies in the state.
func (r *Replica) bear(s *split) {
	child := keys.PartitionID(s.right.Id)
	if s.birth == Born {
		r.node.Spans.Split(s.left, s.right)
	} else {
		r.node.Spans.Own(s.left)
	}
	r.node.Logger.Info("a partition has split", "partition", r.id, "replica", r.self, "child", child,
		"at", keys.Pretty(s.right.Start), "generation", s.left.Generation)
	if r.node.Split != nil {
		r.node.Split(s.right, r.self, s.birth, r.Leadership().IsLeader)
	}
}

// narrowLocked forgets the locks of what has split off.
func (r *Replica) narrowLocked(s *split) {
	start := string(keys.UserKey(s.right, s.right.Start))
	var gone []concurrency.Change
	r.mu.locks.Each(start, "", func(l *lock) bool {
		gone = append(gone, concurrency.Change{Key: l.Key, Released: true})
		return true
	})
	r.requeueLocked(r.mu.locks.Apply(gone))
}

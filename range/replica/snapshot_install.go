package replica

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Install makes the snapshot the state, in one step. What was in flight or remembered is of the
// past.
func (s *staged) Install() error {
	r := s.r
	defer r.node.Spans.Unclaim(s.claim)
	if !r.enter() {
		r.state.DiscardTables(s.paths)
		return ErrClosed
	}
	defer r.exit()
	r.applying.lock()
	defer r.applying.unlock()
	if r.consumed.Load() {
		r.state.DiscardTables(s.paths)
		return fmt.Errorf("partition %s: %w", r.id, errConsumed)
	}
	if index, _ := r.Applied(); s.applied.Index < index {
		r.state.DiscardTables(s.paths)
		return fmt.Errorf("partition %s: a snapshot of index %d is older than what is applied, %d",
			r.id, s.applied.Index, index)
	}
	// INVARIANT: the threshold is published before anything that it gives free is gone.
	if threshold := s.applied.Threshold; r.threshold.Load().Less(threshold) {
		r.threshold.Store(&threshold)
	}
	r.vacant.Begin()
	defer r.vacant.End()
	r.vacant.Reset()
	if err := s.install(); err != nil {
		err = fmt.Errorf("installing a snapshot of partition %s: %w", r.id, err)
		r.fail(err)
		return err
	}
	var end ending
	r.mu.Lock()
	r.giveUpLocked(&end, outcomeUnknown)
	r.mu.Unlock()
	r.finish(&end)
	if err := r.reload(s.applied, s.descriptor); err != nil {
		r.fail(err)
		return err
	}
	s.tellTaken()
	r.node.Metrics.snapshots.Inc()
	return nil
}

// install brings the tables in, takes over from those partitions that this one has consumed, and
// removes what it, and they, had beyond its present span.
func (s *staged) install() error {
	r, span := s.r, keys.PartitionSpan(s.descriptor)
	taken := s.stopConsumed()
	// INVARIANT: what split off before is durable before the snapshot takes its place: it could not
	// be made again.
	flush := r.FlushSplits
	if len(taken) > 0 {
		flush = r.state.Flush
	}
	if err := flush(); err != nil {
		return err
	}
	if err := r.state.Ingest(context.Background(), s.paths); err != nil {
		return err
	}
	former := r.Descriptor()
	if len(taken) == 0 && (storage.IsEmpty(former) || keys.PartitionSpan(former).Equal(span)) {
		return nil
	}
	// INVARIANT: after the ingestion, for a partition that lacked a part of itself would go on with
	// its log; and before the descriptor is published, for the part may be another replica's then.
	// After a crash in between it is in no partition's span, and goes when the node starts
	// (birth.Sweep), as what consumed partitions have of their own does (birth.Bury). The generation
	// is published before: a read that finds nothing there is not to answer.
	r.coming.Store(s.descriptor.Generation)
	b := r.state.NewBatch()
	defer b.Close()
	had := taken
	if !storage.IsEmpty(former) {
		had = append(had[:len(had):len(had)], former)
	}
	for _, d := range had {
		if err := storage.DeleteBeyond(b, keys.PartitionSpan(d), span); err != nil {
			return err
		}
	}
	for _, d := range taken {
		if err := storage.DeleteLocal(b, keys.PartitionID(d.Id)); err != nil {
			return err
		}
	}
	if err := r.state.Commit(b); err != nil {
		return err
	}
	r.node.Spans.Merge(s.descriptor, taken...)
	s.taken = taken
	return nil
}

// stopConsumed has nothing more applied to the replicas here of partitions that this one has
// consumed.
func (s *staged) stopConsumed() (taken []*clusterpb.Partition) {
	for stopped := map[uint64]bool{}; ; {
		// Once more after each round: what was still applied may have split.
		taken = s.r.node.Spans.Consumed(s.descriptor)
		more := false
		for _, d := range taken {
			if stopped[d.Id] {
				continue
			}
			stopped[d.Id], more = true, true
			if s.r.node.Open == nil {
				continue
			}
			if q := s.r.node.Open(keys.PartitionID(d.Id)); q != nil {
				q.stop()
			}
		}
		if !more {
			return taken
		}
	}
}

// tellTaken says that this partition has taken over from those that it has consumed.
func (s *staged) tellTaken() {
	for _, d := range s.taken {
		id := keys.PartitionID(d.Id)
		if s.r.node.Open != nil {
			if q := s.r.node.Open(id); q != nil {
				q.endConsumed(s.descriptor)
			}
		}
		if s.r.node.Taken != nil {
			s.r.node.Taken(id, s.descriptor)
		}
	}
}

// Discard removes the tables.
func (s *staged) Discard() {
	s.r.state.DiscardTables(s.paths)
	s.r.node.Spans.Unclaim(s.claim)
}

// FlushSplits makes the splits durable that are applied here.
func (r *Replica) FlushSplits() error {
	d := r.Descriptor()
	if storage.IsEmpty(d) || d.Generation == 1 {
		return nil
	}
	value, found, err := r.state.DurableGet(keys.LocalKey(r.id, keys.SuffixDescriptor))
	if err != nil {
		return err
	}
	if found {
		durable, err := storage.DecodeDescriptor(r.id, value)
		if err == nil && durable.Generation == d.Generation {
			return nil
		}
	}
	return r.state.Flush()
}

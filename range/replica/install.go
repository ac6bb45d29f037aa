package replica

import (
	"context"
	"fmt"
	"io"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/snapshot"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Snapshot returns a handle of the present state. It may run concurrently with Apply.
func (r *Replica) Snapshot() (group.Snapshot, error) {
	if !r.m.Enter() {
		return nil, machine.ErrClosed
	}
	s, err := snapshot.Take(r.state, r.id, r.m.Exit)
	if err != nil {
		r.m.Exit()
		return nil, fmt.Errorf("snapshot of partition %s: %w", r.id, err)
	}
	return s, nil
}

// StageSnapshot reads and verifies a snapshot, and writes it to tables, which no reader sees before
// Install. It runs concurrently with Apply.
func (r *Replica) StageSnapshot(ctx context.Context, index, term uint64,
	in io.Reader) (group.Staged, error) {
	if !r.m.Enter() {
		return nil, machine.ErrClosed
	}
	defer r.m.Exit()
	s, err := r.snapshots.Receive(ctx, index, term, in)
	if err != nil {
		return nil, err
	}
	return &installation{Staged: s, r: r}, nil
}

// installation is a received snapshot that is to become the state of its replica.
type installation struct {
	*snapshot.Staged
	r *Replica
	// taken are the partitions whose spans the installation has taken over.
	taken []*clusterpb.Partition
}

var _ group.Staged = (*installation)(nil)

// Install makes the snapshot the state, in one step. Everything in flight is given up, and what was
// remembered of the former state is forgotten.
func (s *installation) Install() error {
	r := s.r
	defer s.Unclaim()
	if !r.m.Enter() {
		s.DiscardTables()
		return machine.ErrClosed
	}
	defer r.m.Exit()
	r.applying.lock()
	defer r.applying.unlock()
	if r.subsumed.Load() {
		s.DiscardTables()
		return fmt.Errorf("partition %s: %w", r.id, errSubsumed)
	}
	if index, _ := r.Applied(); s.Applied.Index < index {
		s.DiscardTables()
		return fmt.Errorf("partition %s: a snapshot of index %d is older than what is applied, %d",
			r.id, s.Applied.Index, index)
	}
	// INVARIANT: the threshold is published before any version below it is removed.
	r.m.RaiseThreshold(s.Applied.Threshold)
	r.m.Vacant.Begin()
	defer r.m.Vacant.End()
	r.m.Vacant.Reset()
	if err := s.install(); err != nil {
		err = fmt.Errorf("installing a snapshot of partition %s: %w", r.id, err)
		r.fail(err)
		return err
	}
	var end eval.Ending
	r.m.Mu.Lock()
	r.eval.GiveUpLocked(&end, eval.OutcomeUnknown)
	if invariants.Enabled {
		checkInvariantAdvance(r.id, &r.m.Mu.Applied, &s.Applied)
	}
	r.m.Mu.Unlock()
	r.eval.Finish(&end)
	if err := r.reload(s.Applied, s.Descriptor); err != nil {
		r.fail(err)
		return err
	}
	s.tellTaken()
	r.node.Metrics.Applied.Snapshots.Inc()
	return nil
}

// install ingests the tables, takes over the spans of partitions that this one has consumed, and
// removes keys of this and those partitions that lie beyond the present span.
func (s *installation) install() error {
	r, span := s.r, keys.PartitionSpan(s.Descriptor)
	taken := s.stopSubsumed()
	// INVARIANT: children that have split off are durable before the snapshot replaces the state:
	// they could not be made again.
	flush := r.FlushSplits
	if len(taken) > 0 {
		flush = r.state.Flush
	}
	if err := flush(); err != nil {
		return err
	}
	if err := s.Ingest(); err != nil {
		return err
	}
	former := r.Descriptor()
	if len(taken) == 0 && (storage.IsEmpty(former) || keys.PartitionSpan(former).Equal(span)) {
		return nil
	}
	// INVARIANT: the removal comes after the ingestion, since a partition that lacked a part of
	// itself would go on with its log; and before the descriptor is published, since the part may
	// then be another replica's. After a crash in between, the keys are in no partition's span, and
	// go when the node starts (splitrecovery.Sweep); so does what subsumed partitions have of their
	// own (splitrecovery.Bury). The generation is published before the removal: a read that finds
	// nothing there must not answer.
	r.m.Announce(s.Descriptor.Generation)
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
	r.node.Spans.Merge(s.Descriptor, taken...)
	s.taken = taken
	return nil
}

// stopSubsumed ends the apply of those replicas on this node whose partitions this one has
// consumed.
func (s *installation) stopSubsumed() (taken []*clusterpb.Partition) {
	for stopped := map[uint64]bool{}; ; {
		// Look again after each round: an entry that was still applied may have split a partition.
		taken = s.r.node.Spans.Subsumed(s.Descriptor)
		more := false
		for _, d := range taken {
			if stopped[d.Id] {
				continue
			}
			stopped[d.Id], more = true, true
			if q := s.r.node.Siblings.Open(keys.PartitionID(d.Id)); q != nil {
				q.stop()
			}
		}
		if !more {
			return taken
		}
	}
}

// tellTaken tells the node and the consumed partitions that this partition has taken their spans.
func (s *installation) tellTaken() {
	for _, d := range s.taken {
		id := keys.PartitionID(d.Id)
		if q := s.r.node.Siblings.Open(id); q != nil {
			q.endSubsumed(s.Descriptor)
		}
		s.r.node.Siblings.Taken(id, s.Descriptor)
	}
}

// FlushSplits makes durable the splits that are applied here.
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

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

// Snapshot returns a handle of the state as it is now. It may run beside Apply.
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

// StageSnapshot reads and verifies a snapshot, and writes it to tables. Nothing of it shows before
// Install. It runs beside Apply.
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

// installation is a received snapshot on its way into the state of its replica.
type installation struct {
	*snapshot.Staged
	r *Replica
	// taken are the partitions from which the installation has taken over.
	taken []*clusterpb.Partition
}

var _ group.Staged = (*installation)(nil)

// Install makes the snapshot the state, in one step. What was in flight or remembered is of the
// past.
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
	if r.consumed.Load() {
		s.DiscardTables()
		return fmt.Errorf("partition %s: %w", r.id, errConsumed)
	}
	if index, _ := r.Applied(); s.Applied.Index < index {
		s.DiscardTables()
		return fmt.Errorf("partition %s: a snapshot of index %d is older than what is applied, %d",
			r.id, s.Applied.Index, index)
	}
	// INVARIANT: the threshold is published before anything that it gives free is gone.
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

// install brings the tables in, takes over from those partitions that this one has consumed, and
// removes what it, and they, had beyond its present span.
func (s *installation) install() error {
	r, span := s.r, keys.PartitionSpan(s.Descriptor)
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
	if err := s.Ingest(); err != nil {
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

// stopConsumed has nothing more applied to the replicas here of partitions that this one has
// consumed.
func (s *installation) stopConsumed() (taken []*clusterpb.Partition) {
	for stopped := map[uint64]bool{}; ; {
		// Once more after each round: what was still applied may have split.
		taken = s.r.node.Spans.Consumed(s.Descriptor)
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
func (s *installation) tellTaken() {
	for _, d := range s.taken {
		id := keys.PartitionID(d.Id)
		if s.r.node.Open != nil {
			if q := s.r.node.Open(id); q != nil {
				q.endConsumed(s.Descriptor)
			}
		}
		if s.r.node.Taken != nil {
			s.r.node.Taken(id, s.Descriptor)
		}
	}
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

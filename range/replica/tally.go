package replica

import (
	"bytes"
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// tally counts what the right part of a partition holds, while it goes on changing: counted is of a
// snapshot of the engine that was taken with nothing in flight, and applied what this leadership
// epoch has applied there since.
type tally struct {
	span     keys.Span
	snapshot *engine.Snapshot
	counted  storage.Stats
	// applied is guarded by Replica.mu.
	applied proposal.Delta
}

// has says whether an internal key is in the right part. A nil tally has none.
func (t *tally) has(internalKey []byte) bool {
	return t != nil && bytes.Compare(internalKey, t.span.Start) >= 0
}

// stats is what the right part holds. The caller holds Replica.mu, and nothing is in flight.
func (t *tally) stats() storage.Stats {
	return storage.Stats{
		LiveKeys: t.counted.LiveKeys + uint64(t.applied.LiveKeys),
		Versions: t.counted.Versions + uint64(t.applied.Versions),
		Bytes:    t.counted.Bytes + uint64(t.applied.Bytes),
		Expiring: t.counted.Expiring + uint64(t.applied.Expiring),
	}
}

// beginTally begins to keep account of a part. It is evaluated in its turn, with nothing in flight:
// the engine has what was written before, and what comes later is accounted for.
func (r *Replica) beginTally(ctx context.Context, right *clusterpb.Partition) (*tally, error) {
	t := &tally{span: keys.PartitionSpan(right)}
	begun := false
	// It is not left alone before its turn: it would begin then.
	err := r.command(context.WithoutCancel(ctx), proposal.KindWrite,
		func(e *evaluation, _ *proposal.Entry) (bool, error) {
			snapshot, err := r.state.NewSnapshot()
			if err != nil {
				return false, err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.mu.tally != nil || !r.mu.leadership.is(e.epoch) {
				_ = snapshot.Close()
				return false, errNotLeader
			}
			t.snapshot, r.mu.tally, begun = snapshot, t, true
			return false, errNothingToDo
		})
	if begun {
		return t, nil
	}
	return nil, err
}

// endTally ends it, if the split has not.
func (r *Replica) endTally(t *tally) {
	r.mu.Lock()
	if r.mu.tally == t {
		r.mu.tally = nil
	}
	r.mu.Unlock()
	_ = t.snapshot.Close()
}

// countPiece is how long a count goes on without a pause. Several partitions are likely to split at
// the same time, for they grow alike; without pauses their counts would take all processors, and
// requests would wait for one.
const countPiece = 500 * time.Microsecond

// count counts what the part held when the tally began.
func (t *tally) count(ctx context.Context, pacer *admission.Pacer) (err error) {
	began := time.Now()
	t.counted, err = storage.CountVersions(t.snapshot, t.span, func() error {
		worked := time.Since(began)
		if worked < countPiece {
			return nil
		}
		err := pacer.Wait(ctx, began.Add(worked), worked, admission.Low)
		began = time.Now()
		return err
	})
	return err
}

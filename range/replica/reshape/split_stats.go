package reshape

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

// SplitStats count the content of the right part of a partition while the part changes. counted
// comes from a snapshot of the engine that was taken with nothing in flight; applied is what this
// leadership epoch has applied there since.
type SplitStats struct {
	span     keys.Span
	snapshot *engine.Snapshot
	counted  storage.Stats
	// applied is guarded by the replica's lock.
	applied proposal.Delta
}

// Has reports whether an internal key is in the right part; false if t is nil.
func (t *SplitStats) Has(internalKey []byte) bool {
	return t != nil && bytes.Compare(internalKey, t.span.Start) >= 0
}

// Applied accounts for what an entry has changed in the right part. The caller holds the replica's
// lock.
func (t *SplitStats) Applied(d proposal.Delta) { t.applied.Add(d) }

// Stats returns the statistics of the right part. The caller holds the replica's lock, and nothing
// is in flight.
func (t *SplitStats) Stats() storage.Stats {
	return storage.Stats{
		LiveKeys: t.counted.LiveKeys + uint64(t.applied.LiveKeys),
		Versions: t.counted.Versions + uint64(t.applied.Versions),
		Bytes:    t.counted.Bytes + uint64(t.applied.Bytes),
		Expiring: t.counted.Expiring + uint64(t.applied.Expiring),
	}
}

// BeginSplitStats begins to keep account of a part. It is evaluated in its turn, with nothing in
// flight: the engine has what was written before, and later writes are accounted for.
func (r *Reshaper) BeginSplitStats(ctx context.Context, right *clusterpb.Partition) (*SplitStats,
	error) {
	t := &SplitStats{span: keys.PartitionSpan(right)}
	begun := false
	// The call must not end before its turn: the account would begin then nevertheless.
	_, err := r.replica.Propose(context.WithoutCancel(ctx), proposal.KindWrite,
		func(e Evaluation) (bool, error) {
			snapshot, err := r.state.NewSnapshot()
			if err != nil {
				return false, err
			}
			t.snapshot = snapshot
			if err := e.BeginSplitStats(t); err != nil {
				_ = snapshot.Close()
				return false, err
			}
			begun = true
			return false, nil
		})
	if begun {
		return t, nil
	}
	return nil, err
}

// EndSplitStats ends the account, unless the split has ended it.
func (r *Reshaper) EndSplitStats(t *SplitStats) {
	r.replica.EndSplitStats(t)
	_ = t.snapshot.Close()
}

// countPiece is how long a count goes on without a pause. Several partitions are likely to split at
// the same time, since they grow alike; without pauses their counts would take all processors, and
// requests would wait for one.
const countPiece = 500 * time.Microsecond

// Count counts the part as of the beginning of the account.
func (t *SplitStats) Count(ctx context.Context, pacer *admission.Pacer) (err error) {
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

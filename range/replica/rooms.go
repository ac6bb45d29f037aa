package replica

import (
	"context"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/gc"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
)

// GC returns the garbage collector of the partition.
func (r *Replica) GC() *gc.Collector { return r.gc }

// collected presents the replica to its garbage collector: a gc.Replica.
type collected struct{ *Replica }

func (r collected) Threshold() hlc.Timestamp { return r.m.Threshold() }

// BeginCollection returns the memory of the timestamp cache.
func (r collected) BeginCollection() {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	r.m.Mu.Cache.Release()
}

func (r collected) Propose(ctx context.Context, kind proposal.Kind,
	evaluate func(gc.Evaluation) (bool, error)) (proposed bool, err error) {
	return r.eval.Propose(ctx, kind,
		func(e eval.Own) (bool, error) { return evaluate(e) })
}

func (r collected) Enter() bool { return r.m.Enter() }

func (r collected) MayCollect() bool { return r.eval.MayCollect() }
func (r collected) Exit()            { r.m.Exit() }

func (r collected) Passed(ts hlc.Timestamp) bool { return r.m.Passed(ts) }

// Writes returns the evaluator, which takes the partition's writes from the queue to the log.
func (r *Replica) Writes() *eval.Evaluator { return r.eval }

// Reads returns what serves the partition's reads.
func (r *Replica) Reads() *read.Reader { return r.reads }

// Reshape returns what splits, merges and freezes the partition, and changes its replicas.
func (r *Replica) Reshape() *reshape.Reshaper { return r.reshape }

// reshaped presents the replica to its reshaper: a reshape.Replica.
type reshaped struct{ *Replica }

func (r reshaped) Propose(ctx context.Context, kind proposal.Kind,
	evaluate func(reshape.Evaluation) (bool, error)) (proposed bool, err error) {
	return r.eval.Propose(ctx, kind,
		func(e eval.Own) (bool, error) { return evaluate(e) })
}

func (r reshaped) ProposeThaw(ctx context.Context,
	evaluate func(reshape.Evaluation) (bool, error)) error {
	return r.eval.ProposeThaw(ctx, func(e eval.Own) (bool, error) { return evaluate(e) })
}

func (r reshaped) Subsumed() error {
	if r.subsumed.Load() {
		return errSubsumed
	}
	return nil
}

func (r reshaped) EndSplitStats(t *reshape.SplitStats) { r.eval.EndSplitStats(t) }

func (r reshaped) Enter() error {
	if !r.m.Enter() {
		return machine.ErrClosed
	}
	return nil
}

func (r reshaped) Exit() { r.m.Exit() }

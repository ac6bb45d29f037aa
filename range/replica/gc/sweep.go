package gc

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// chunkFull bounds the versions of one removal entry on a disk without room: the entry itself takes
// some.
const chunkFull = 250

// sweep removes the versions that no read at or above the threshold sees.
func (g *Collector) sweep(ctx context.Context, result *Result) error {
	now := progress{result.Threshold, g.Replica.Descriptor().GetGeneration()}
	if g.progress == now {
		return nil
	}
	g.expiries.begin()
	for more, resume := true, []byte(nil); more; {
		if !g.Replica.MayCollect() {
			return ErrNoRoom
		}
		limits := g.Chunk
		if g.DiskFull != nil && g.DiskFull() {
			limits.Versions = min(limits.Versions, chunkFull)
		}
		var found mvcc.GarbageResult
		remove := func(e Evaluation) (bool, error) {
			span := keys.PartitionSpan(e.Descriptor())
			if resume != nil {
				span.Start = resume
			}
			garbage, err := mvcc.Garbage(g.State, span, g.Replica.Threshold(), limits)
			if err != nil {
				return false, err
			}
			more, resume, found = garbage.More, garbage.Resume, garbage
			g.expiries.met(garbage.NextExpiry)
			if len(garbage.Versions) == 0 {
				return false, nil
			}
			if err := mvcc.Remove(e.Batch(), garbage.Versions); err != nil {
				return false, err
			}
			// INVARIANT: a key's newest version is removed only if nothing is evaluated until it is
			// gone: a write in between would find it in the engine, and count the key as live
			// before.
			e.Removed(&garbage, len(garbage.Expired) > 0)
			g.Metrics.expired.Add(float64(len(garbage.Expired)))
			return true, nil
		}
		proposed, err := g.Replica.Propose(ctx, proposal.KindRemove, remove)
		if err != nil {
			return err
		}
		if proposed {
			result.Versions += uint64(len(found.Versions))
			result.Bytes += uint64(found.Bytes)
			g.Metrics.removed.Add(float64(len(found.Versions)))
		}
	}
	g.expiries.end()
	g.progress, result.Swept = now, true
	return nil
}

package gc

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// Collect raises the garbage collection threshold to now less the window, but not above the
// protected timestamp, and removes what no client can read any more. It does nothing, and costs
// nothing, if as far as is known the partition holds no transaction record, no version but the
// newest of keys with a value, and no value that has expired at that threshold. Only a leader can
// collect; one collection runs at a time.
//
// The threshold is never above the clock: later writes are above it.
func (g *Collector) Collect(ctx context.Context, now hlc.Timestamp) (Result, error) {
	g.Replica.BeginCollection()
	result := Result{Threshold: g.Replica.Threshold()}
	stats := g.Replica.Stats()
	kept := g.kept.Load()
	threshold := kept.limit(now.Add(-kept.window))
	g.mu.Lock()
	nothing := stats.Versions == stats.LiveKeys && !g.mu.mayHaveRecords &&
		(stats.Expiring == 0 || threshold.Wall < g.expiries.first())
	if kept.window < 0 || nothing || g.mu.running {
		g.mu.Unlock()
		return result, nil
	}
	g.mu.running = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.mu.running = false
		g.mu.Unlock()
	}()
	err := g.collect(ctx, threshold, &result)
	if err != nil {
		return result, fmt.Errorf("partition %s: collecting garbage: %w", g.Replica.ID(), err)
	}
	return result, nil
}

func (g *Collector) collect(ctx context.Context, threshold hlc.Timestamp, result *Result) error {
	if !g.Replica.MayCollect() {
		return ErrNoRoom
	}
	_, err := g.Replica.Propose(ctx, proposal.KindThreshold, func(e Evaluation) (bool, error) {
		// Again: a consumer may have begun while this waited for its turn.
		e.Entry().Threshold = hlc.Min(g.kept.Load().limit(threshold), g.Clock.Now())
		return result.Threshold.Less(e.Entry().Threshold), nil
	})
	if err != nil {
		return err
	}
	result.Threshold = g.Replica.Threshold()
	if err := g.sweep(ctx, result); err != nil {
		return err
	}
	return g.collectRecords(ctx)
}

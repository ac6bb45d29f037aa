package propose

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// split makes the operator of a split.
func (pr *Proposer) split(f objective.Finding) (planner.Operator, Outcome) {
	i := f.Partition
	p, g := &pr.state.Partitions[i], &pr.state.Growths[i]
	w := pr.objective.Split(i)
	if w.At == nil {
		return planner.Operator{}, Stuck
	}
	if w.Cause == planner.TooBusy && pr.objective.SplitPause(g) > 0 ||
		pr.objective.ResizeLimit(p) != "" {
		return planner.Operator{}, Waits
	}
	ks := &pr.state.Keyspaces[p.Keyspace].Wants
	c := newChange(i, planner.Split)
	c.key, c.resizes = w.At.Key, true
	reason := &planner.GrowthReason{At: w.At}
	before := 0.0
	if c.reason = (planner.Reason{Cause: w.Cause, Growth: reason}); w.Cause == planner.TooLarge {
		reason.Bytes, reason.Size = p.Bytes, ks.SplitSize
		before = float64(p.Bytes) / float64(ks.SplitSize)
	} else {
		reason.Load, reason.Limit = planner.Cores(g.Sustained), pr.state.Settings().SplitLoad
		before = float64(g.Sustained) / float64(pr.state.Settings().SplitLoad)
	}
	c.growth = [2]float64{before, before * float64(w.At.Larger()) / 1000}
	c.rejected = pr.otherSplit(g, &w)
	return pr.complete(c)
}

// otherSplit is the alternative to a split; nil if there is none.
func (pr *Proposer) otherSplit(g *state.Growth, w *objective.Split) *planner.Alternative {
	h := pr.state.Hint(g)
	switch {
	case w.Other != nil:
		return &planner.Alternative{Decided: planner.LevelGrowth,
			Text: fmt.Sprintf("a split for its load, %s: the size comes first", w.Other)}
	case w.Cause == planner.TooLarge && h.ByLoad != nil:
		return &planner.Alternative{Decided: planner.LevelGrowth,
			Text: fmt.Sprintf("the key that divides its load, %s: the load needs no split", h.ByLoad)}
	case w.Cause == planner.TooBusy && h.BySize != nil:
		return &planner.Alternative{Decided: planner.LevelGrowth,
			Text: fmt.Sprintf("the key that divides its bytes, %s: the load is what there is too much of",
				h.BySize)}
	}
	return nil
}

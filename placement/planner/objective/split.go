package objective

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
)

// mostOneSided is how much of the bytes one side may have after a split by size, in thousandths. A
// split with more on one side would be for nothing.
const mostOneSided = 950

// Split says whether a partition is to be split, as far as the partition itself shows.
type Split struct {
	// Needed: the partition is too large or too busy, as Cause says.
	Needed bool
	Cause  planner.Cause
	// At is the key to split at; nil if the partition is not to be split.
	At *planner.SplitPoint
	// Other is a second key that would do, for the cause of less weight.
	Other *planner.SplitPoint
	// Why says why a partition that is too large or too busy is not split.
	Why NoSplit
}

// NoSplit says why a partition is not split.
type NoSplit uint8

const (
	// SplitHelps: the partition is split.
	SplitHelps NoSplit = iota
	// SplitNotNeeded: the partition is neither too large nor too busy.
	SplitNotNeeded
	// SplitByRequest: the keyspace splits only on request.
	SplitByRequest
	// SplitKeyUnknown: no key to split at is known yet.
	SplitKeyUnknown
	// OneKeyHasBytes: one key has nearly all bytes.
	OneKeyHasBytes
	// OneKeyHasLoad: one key has most of the load.
	OneKeyHasLoad
	// WritesAscend: writes go to the end, which would stay on one side.
	WritesAscend
	// TooMuchAcross: too much of the load would touch both sides.
	TooMuchAcross
	// OneSided: one side would have most of the load, for another reason.
	OneSided
)

// Split finds out whether a partition is to be split.
func (o *Objective) Split(i uint32) Split {
	p, g := &o.state.Partitions[i], &o.state.Growths[i]
	ks := &o.state.Keyspaces[p.Keyspace].Wants
	large := p.Bytes >= ks.SplitSize
	busy := planner.Cores(g.Sustained) >= o.state.Settings().SplitLoad &&
		g.MeasuredFor() >= o.state.Settings().LoadWindow
	if !large && !busy {
		return Split{Why: SplitNotNeeded}
	}
	h := o.state.Hint(g)
	out := Split{Cause: planner.TooLarge, Needed: true}
	if ks.NoAuto {
		if !large {
			out.Cause = planner.TooBusy
		}
		out.Why = SplitByRequest
		return out
	}
	if large {
		if out.Why = bySize(h); out.Why == SplitHelps {
			out.At = h.BySize
			if busy && o.byLoad(g, h) == SplitHelps {
				out.Other = h.ByLoad
			}
			return out
		}
		if !busy {
			return out
		}
	}
	why := o.byLoad(g, h)
	if large && why != SplitHelps {
		return out // the size is the first cause to explain
	}
	out.Cause, out.Why = planner.TooBusy, why
	if why == SplitHelps {
		out.At = h.ByLoad
	}
	return out
}

// bySize says why a partition cannot be split in the middle of its bytes.
func bySize(h *state.Hint) NoSplit {
	switch {
	case h.BySize != nil && h.BySize.Larger() <= mostOneSided:
		return SplitHelps
	case h.OneKey || h.BySize != nil:
		return OneKeyHasBytes
	}
	return SplitKeyUnknown
}

// byLoad says why a split would not divide the load of a partition.
func (o *Objective) byLoad(g *state.Growth, h *state.Hint) NoSplit {
	most := int(1000 * o.state.Settings().MostLeft)
	at := h.ByLoad
	switch {
	case at != nil && at.Larger() < most && at.Across <= int(1000*o.state.Settings().MostAcross):
		return SplitHelps
	case h.Hot >= most || at != nil && h.Hot >= state.Sequential:
		return OneKeyHasLoad
	case g.Ascending >= state.Sequential:
		return WritesAscend
	case at == nil:
		return SplitKeyUnknown
	case at.Across > int(1000*o.state.Settings().MostAcross):
		return TooMuchAcross
	}
	return OneSided
}

// IsNewTail says whether a partition is the new tail of ascending keys, and was not given a leader
// for that yet. Ascending keys are all written to the last partition. It is split close to its end,
// and the new tail is led by the node with the least load, so that no node leads all tails.
func (o *Objective) IsNewTail(i uint32) bool {
	p, g := &o.state.Partitions[i], &o.state.Growths[i]
	return g.Ascending >= state.Sequential && !g.Founded && g.Resized != 0 && p.Ended <= g.Resized &&
		!o.state.Keyspaces[p.Keyspace].Wants.NoAuto && o.state.LeftOf(g.Resized, state.TailFor) > 0
}

// SplitPause is how much is left of the pause after the last split of a partition.
func (o *Objective) SplitPause(g *state.Growth) time.Duration {
	return o.state.LeftOf(g.Resized, o.state.Settings().SplitPause)
}

// ResizeLimit says in words which limit a split or merge of a partition waits for; empty: no limit.
func (o *Objective) ResizeLimit(p *state.Partition) string {
	if o.state.Resizing >= o.state.Settings().AllSplits {
		return fmt.Sprintf("%s split or merge, as many as may",
			words.Plural(o.state.Resizing, "partition"))
	}
	if n := o.state.Nodes[p.Leader].Resizing; n >= o.state.Settings().NodeSplits {
		return fmt.Sprintf("%s that %s leads split or merge, as many as may",
			words.Plural(n, "partition"), o.state.NodeID(p.Leader))
	}
	return ""
}

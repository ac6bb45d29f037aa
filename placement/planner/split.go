package planner

import (
	"fmt"
	"time"
)

const (
	// sequential is the part of the writes, in thousandths, from which on they count as ascending.
	sequential = 500
	// mostOneSided is how much one side may keep of the bytes, in thousandths: with more the split
	// would be for nothing.
	mostOneSided = 950
	// endFor is for how long after it split off the new end of ascending keys is placed.
	endFor = 5 * time.Minute
)

// splitting is what a look at a partition alone says of splitting it.
type splitting struct {
	cause Cause
	// at is where; nil if it is not to be split, or cannot be.
	at *SplitPoint
	// why says why it is not split although it is too large or too busy; needed: it is one of these.
	why    splitHindrance
	needed bool
	// other is a key that would do as well, of the lesser cause.
	other *SplitPoint
}

// splitHindrance is why a partition is not split.
type splitHindrance uint8

const (
	hindNothing splitHindrance = iota
	// hindNoNeed: it is neither too large nor too busy.
	hindNoNeed
	// hindOff: its keyspace splits only when asked.
	hindOff
	// hindNoKey: no key is known yet.
	hindNoKey
	// hindOneKey: one key has the bytes.
	hindOneKey
	// hindHotKey, hindAscending and hindAcross: one key has the load, it is always at the end, or too
	// many requests would touch both sides; hindOneSided: one side would keep it for another reason.
	hindHotKey
	hindAscending
	hindAcross
	hindOneSided
)

// splittingOf looks at a partition.
func (s *State) splittingOf(i uint32) splitting {
	p, g := &s.partitions[i], &s.growths[i]
	ks := &s.keyspaces[p.keyspace].info
	large := p.bytes >= ks.SplitSize
	busy := Cores(g.sustained) >= s.settings.SplitLoad && s.measuredFor(g) >= s.settings.LoadWindow
	if !large && !busy {
		return splitting{why: hindNoNeed}
	}
	h := s.hint(g)
	out := splitting{cause: TooLarge, needed: true}
	if ks.NoAuto {
		if !large {
			out.cause = TooBusy
		}
		out.why = hindOff
		return out
	}
	if large {
		if out.why = hindersSize(h); out.why == hindNothing {
			out.at = h.bySize
			if busy && s.hindersLoad(g, h) == hindNothing {
				out.other = h.byLoad
			}
			return out
		}
		if !busy {
			return out
		}
	}
	why := s.hindersLoad(g, h)
	if large && why != hindNothing {
		return out // the size is what has to be explained
	}
	out.cause, out.why = TooBusy, why
	if why == hindNothing {
		out.at = h.byLoad
	}
	return out
}

// measuredFor is for how long the leader has measured, up to an hour.
func (s *State) measuredFor(g *growth) time.Duration {
	return time.Duration(g.measured) * time.Second
}

// hindersSize says why a partition cannot be split at the middle of its bytes.
func hindersSize(h *hint) splitHindrance {
	switch {
	case h.bySize != nil && h.bySize.larger() <= mostOneSided:
		return hindNothing
	case h.oneKey || h.bySize != nil:
		return hindOneKey
	}
	return hindNoKey
}

// hindersLoad says why splitting a partition would not help its load.
func (s *State) hindersLoad(g *growth, h *hint) splitHindrance {
	most := int(1000 * s.settings.MostLeft)
	at := h.byLoad
	switch {
	case at != nil && at.larger() < most && at.Across <= int(1000*s.settings.MostAcross):
		return hindNothing
	case h.hot >= most || at != nil && h.hot >= sequential:
		return hindHotKey
	case g.ascending >= sequential:
		return hindAscending
	case at == nil:
		return hindNoKey
	case at.Across > int(1000*s.settings.MostAcross):
		return hindAcross
	}
	return hindOneSided
}

// checkGrowth finds a partition that is to be split, placed or merged, if nothing more urgent is to
// be done. What is found does not depend on the time, and on no other partition's replicas: those
// are looked at when it has its turn.
func (s *State) checkGrowth(i uint32, x *inspection, f *finding) {
	p := &s.partitions[i]
	if !x.settled || s.leaderOf(p) == noNode {
		return
	}
	if f.urgency > urgeSplit {
		if w := s.splittingOf(i); w.at != nil {
			f.urgency, f.cause, f.at = urgeSplit, w.cause, noReplica
			return
		}
	}
	if f.urgency > urgeLeader && s.isNewEnd(i) {
		f.urgency, f.cause, f.at = urgeLeader, NewEnd, noReplica
		return
	}
	if f.urgency == urgeNothing && s.settings.Merges {
		if right, _ := s.mergesWith(i); right != none32 {
			f.urgency, f.cause, f.at = urgeMerge, TooSmall, noReplica
		}
	}
}

// split makes the operator of a split.
func (s *State) split(f finding) (Operator, outcome) {
	i := f.partition
	p, g := &s.partitions[i], &s.growths[i]
	w := s.splittingOf(i)
	if w.at == nil {
		return Operator{}, stays
	}
	if w.cause == TooBusy && s.splitPause(g) > 0 || s.splitLimit(p) != "" {
		return Operator{}, waits
	}
	ks := &s.keyspaces[p.keyspace].info
	c := s.newChange(i, Split)
	c.key, c.resizes = w.at.Key, true
	reason := &GrowthReason{At: w.at}
	before := 0.0
	if c.reason = (Reason{Cause: w.cause, Growth: reason}); w.cause == TooLarge {
		reason.Bytes, reason.Size = p.bytes, ks.SplitSize
		before = float64(p.bytes) / float64(ks.SplitSize)
	} else {
		reason.Load, reason.Limit = Cores(g.sustained), s.settings.SplitLoad
		before = float64(g.sustained) / float64(s.settings.SplitLoad)
	}
	c.growth = [2]float64{before, before * float64(w.at.larger()) / 1000}
	c.rejected = s.otherSplit(g, &w)
	return s.complete(c)
}

// otherSplit is the best that is not done where a partition is split.
func (s *State) otherSplit(g *growth, w *splitting) *Alternative {
	h := s.hint(g)
	switch {
	case w.other != nil:
		return &Alternative{Decided: LevelGrowth,
			Text: fmt.Sprintf("a split for its load, %s: the size comes first", w.other)}
	case w.cause == TooLarge && h.byLoad != nil:
		return &Alternative{Decided: LevelGrowth,
			Text: fmt.Sprintf("the key that divides its load, %s: the load needs no split", h.byLoad)}
	case w.cause == TooBusy && h.bySize != nil:
		return &Alternative{Decided: LevelGrowth,
			Text: fmt.Sprintf("the key that divides its bytes, %s: the load is what there is too much of",
				h.bySize)}
	}
	return nil
}

// splitPause is how much of the pause after its last split is left.
func (s *State) splitPause(g *growth) time.Duration {
	return s.leftOf(g.resized, s.settings.SplitPause)
}

// leftOf is how much is left of a pause that began at a time.
func (s *State) leftOf(began uint32, pause time.Duration) time.Duration {
	if began == 0 {
		return 0
	}
	return max(0, pause-time.Duration(s.now.Unix()-int64(began))*time.Second)
}

// splitLimit says which limit a split or merge of a partition waits for; empty: none.
func (s *State) splitLimit(p *partition) string {
	if s.splitting >= s.settings.AllSplits {
		return fmt.Sprintf("%s split or merge, as many as may", plural(s.splitting, "partition"))
	}
	if n := s.nodes[p.leader].splitting; n >= s.settings.NodeSplits {
		return fmt.Sprintf("%s that %s leads split or merge, as many as may", plural(n, "partition"),
			s.id(p.leader))
	}
	return ""
}

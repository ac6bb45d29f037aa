package explain

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
)

// Split says whether a partition is split or merged.
type Split struct {
	// Verdict says whether the partition is split, Merge whether it is merged with its right
	// neighbour, each with the reason.
	Verdict, Merge string
	// Bytes is compared with SplitSize, and Sustained with SplitLoad. Load is the present load.
	Bytes, SplitSize           int64
	Load, Sustained, SplitLoad planner.Cores
	// The keys at which the partition could be split, and what else its leader reports, as in
	// planner.Growth.
	ByLoad    *planner.SplitPoint `json:",omitempty"`
	BySize    *planner.SplitPoint `json:",omitempty"`
	HotKey    planner.Key         `json:",omitempty"`
	Hot       int                 `json:",omitempty"`
	Ascending int                 `json:",omitempty"`
}

// split explains whether a partition is split or merged.
func (e *Explainer) split(i uint32) Split {
	p, g := &e.state.Partitions[i], &e.state.Growths[i]
	ks, h := &e.state.Keyspaces[p.Keyspace].Wants, e.state.Hint(g)
	return Split{Verdict: e.splitVerdict(i), Merge: e.mergeVerdict(i), Bytes: p.Bytes,
		SplitSize: ks.SplitSize, Load: planner.Cores(p.LeaderLoad),
		Sustained: planner.Cores(g.Sustained), SplitLoad: e.state.Settings().SplitLoad,
		ByLoad: h.ByLoad, BySize: h.BySize, HotKey: h.HotKey, Hot: h.Hot,
		Ascending: int(g.Ascending)}
}

// splitVerdict says whether a partition is split.
func (e *Explainer) splitVerdict(i uint32) string {
	p, g := &e.state.Partitions[i], &e.state.Growths[i]
	load, sustained := planner.Cores(p.LeaderLoad), planner.Cores(g.Sustained)
	size := words.Size(e.state.Keyspaces[p.Keyspace].Wants.SplitSize)
	limit := e.state.Settings().SplitLoad
	w := e.objective.Split(i)
	if !w.Needed {
		text := fmt.Sprintf("not needed: it has %s of %s", words.Size(p.Bytes), size)
		if load >= limit {
			return text + fmt.Sprintf(", and has not cost %s for three windows yet: %s now, %s at "+
				"least", limit, load, sustained)
		}
		return text + fmt.Sprintf(" and costs %s of %s", load, limit)
	}
	text := fmt.Sprintf("%s: it has %s of %s", w.Cause, words.Size(p.Bytes), size)
	if w.Cause == planner.TooBusy {
		text = fmt.Sprintf("%s: it costs %s, at least %s for three windows, of %s", w.Cause, load,
			sustained, limit)
	}
	if w.At == nil {
		return text + "; " + e.whyNoSplit(i, &w)
	}
	if waits := e.splitWaits(i, &w); waits != "" {
		return text + fmt.Sprintf("; to be split, %s; waits: %s", w.At, waits)
	}
	return text + fmt.Sprintf("; to be split now, %s", w.At)
}

// whyNoSplit says why a partition is not split although it is too large or too busy.
func (e *Explainer) whyNoSplit(i uint32, w *objective.Split) string {
	g := &e.state.Growths[i]
	h := e.state.Hint(g)
	most := words.Permille(int(1000 * e.state.Settings().MostLeft))
	switch w.Why {
	case objective.SplitByRequest:
		return "its keyspace splits only when that is asked for"
	case objective.OneKeyHasBytes:
		return "one key has nearly all of the bytes, and the versions of a key are never parted"
	case objective.OneKeyHasLoad:
		return fmt.Sprintf("a split does not help: %s of the load is on the key %s. It is not tried; "+
			"only spreading that key over several, or reading it from a cache, helps",
			words.Permille(h.Hot), h.HotKey)
	case objective.WritesAscend:
		return fmt.Sprintf("a split for the load does not help: %s of the writes go to the end, each "+
			"key above the one before, so that the right side would keep all of it. It splits by size, "+
			"and the new end goes to the node with the least load; a hash keyspace, or keys that begin "+
			"with something that varies, spread such writes", words.Permille(int(g.Ascending)))
	case objective.TooMuchAcross:
		return fmt.Sprintf("a split costs more than it helps: %s of the load would touch both sides, "+
			"more than %s (%s)", words.Permille(h.ByLoad.Across),
			words.Permille(int(1000*e.state.Settings().MostAcross)), h.ByLoad)
	case objective.OneSided:
		return fmt.Sprintf("a split does not help: the best key leaves one side %s, more than %s (%s)",
			words.Permille(h.ByLoad.Larger()), most, h.ByLoad)
	default:
		if w.Cause == planner.TooLarge {
			return "its leader is looking for a key in the middle of its bytes"
		}
		return "its leader has not sampled enough requests to name a key"
	}
}

// splitWaits says what a split waits for; empty: nothing.
func (e *Explainer) splitWaits(i uint32, w *objective.Split) string {
	p, g := &e.state.Partitions[i], &e.state.Growths[i]
	x := e.objective.Inspect(p)
	switch {
	case e.state.Settings().Paused:
		return PausedText
	case p.InFlight:
		return "an operator is in flight"
	case !x.Settled:
		return "its replicas have to be complete, sound and voters"
	case e.state.LeaderOf(p) == state.NoNode:
		return "no leader is known"
	}
	if left := e.objective.SplitPause(g); w.Cause == planner.TooBusy && left > 0 {
		return fmt.Sprintf("%s, the pause after its last split", left)
	}
	return e.objective.ResizeLimit(p)
}

// mergeVerdict says whether a partition is merged with its right neighbour.
func (e *Explainer) mergeVerdict(i uint32) string {
	j, why := e.objective.MergesWith(i)
	if j == state.NoPartition {
		return "no: " + e.whyNoMerge(i, why)
	}
	p, q := &e.state.Partitions[i], &e.state.Partitions[j]
	text := fmt.Sprintf("with %s, %s together", q.ID, words.Size(p.Bytes+q.Bytes))
	switch waits := e.objective.MergeWaits(i, j); {
	case !e.state.Settings().Merges:
		return text + "; this core does not merge by itself"
	case e.state.Settings().Paused:
		return text + "; waits: " + PausedText
	case waits != "":
		return text + "; waits: " + waits
	}
	if n := e.state.Apart(p, q); n > 0 {
		return text + fmt.Sprintf("; %s has to be moved to the other's nodes first",
			words.Plural(n, "replica"))
	}
	if limit := e.objective.ResizeLimit(p); limit != "" {
		return text + "; waits: " + limit
	}
	return text
}

// whyNoMerge says why a partition is not merged with its right neighbour.
func (e *Explainer) whyNoMerge(i uint32, why objective.NoMerge) string {
	p := &e.state.Partitions[i]
	ks := &e.state.Keyspaces[p.Keyspace].Wants
	right := e.state.Growths[i].Right
	switch why {
	case objective.LargeAlone:
		return fmt.Sprintf("it has %s, and neighbours are merged below %s together",
			words.Size(p.Bytes), words.Size(ks.MergeSize))
	case objective.NoRightNeighbour:
		return "it has no neighbour to its right"
	case objective.NeighbourChanges:
		return "its neighbour is about to change"
	case objective.MergeByRequest:
		return "its keyspace merges only when that is asked for"
	case objective.BoundaryFounded:
		return fmt.Sprintf("its keyspace was created with the boundary between it and %s", right)
	case objective.BoundaryAsked:
		return fmt.Sprintf("the boundary between it and %s was asked for; `tidemark merge` merges "+
			"them", right)
	}
	j, _ := e.state.PartitionIndex(right)
	switch why {
	case objective.LargeTogether:
		return fmt.Sprintf("it has %s together with %s, and neighbours are merged below %s",
			words.Size(p.Bytes+e.state.Partitions[j].Bytes), right, words.Size(ks.MergeSize))
	case objective.BusyTogether:
		return fmt.Sprintf("it and %s have cost up to %s together in the last %s, neighbours are "+
			"merged below %s", right, e.state.PeakOf(i)+e.state.PeakOf(j),
			minutes(min(state.PeakFor, e.state.Settings().MergePause)),
			e.state.Settings().SplitLoad/2)
	default:
		return fmt.Sprintf("it and %s have to be calm under one leader for %s", right,
			e.state.Settings().MergePause)
	}
}

// minutes writes a duration, ten minutes in words.
func minutes(d time.Duration) string {
	if d == 10*time.Minute {
		return "ten minutes"
	}
	return d.String()
}

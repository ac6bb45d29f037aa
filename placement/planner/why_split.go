package planner

import "fmt"

// SplitWhy is what the planner knows of splitting and merging a partition.
type SplitWhy struct {
	// Verdict says whether it splits, and why or why not; Merge the same of merging it with its
	// neighbour to the right.
	Verdict, Merge string
	// Bytes and SplitSize, Load, Sustained and SplitLoad are what decides.
	Bytes, SplitSize           int64
	Load, Sustained, SplitLoad Cores
	// ByLoad and BySize are the keys known to divide it, HotKey the key with the most load, Hot and
	// Ascending parts of the load and the writes, in thousandths.
	ByLoad    *SplitPoint `json:",omitempty"`
	BySize    *SplitPoint `json:",omitempty"`
	HotKey    Key         `json:",omitempty"`
	Hot       int         `json:",omitempty"`
	Ascending int         `json:",omitempty"`
}

// splitWhy explains a partition.
func (s *State) splitWhy(i uint32) SplitWhy {
	p, g := &s.partitions[i], &s.growths[i]
	ks, h := &s.keyspaces[p.keyspace].info, s.hint(g)
	return SplitWhy{Verdict: s.splitVerdict(i), Merge: s.mergeVerdict(i),
		Bytes: p.bytes, SplitSize: ks.SplitSize,
		Load: Cores(p.leaderLoad), Sustained: Cores(g.sustained), SplitLoad: s.settings.SplitLoad,
		ByLoad: h.byLoad, BySize: h.bySize, HotKey: h.hotKey, Hot: h.hot, Ascending: int(g.ascending)}
}

// splitVerdict says in words whether a partition splits.
func (s *State) splitVerdict(i uint32) string {
	p, g := &s.partitions[i], &s.growths[i]
	ks := &s.keyspaces[p.keyspace].info
	w := s.splittingOf(i)
	if !w.needed {
		text := fmt.Sprintf("not needed: it has %s of %s", size(p.bytes), size(ks.SplitSize))
		if Cores(p.leaderLoad) >= s.settings.SplitLoad {
			return text + fmt.Sprintf(", and has not cost %s for three windows yet: %s now, %s at least",
				s.settings.SplitLoad, Cores(p.leaderLoad), Cores(g.sustained))
		}
		return text + fmt.Sprintf(" and costs %s of %s", Cores(p.leaderLoad), s.settings.SplitLoad)
	}
	text := fmt.Sprintf("%s: it has %s of %s", w.cause, size(p.bytes), size(ks.SplitSize))
	if w.cause == TooBusy {
		text = fmt.Sprintf("%s: it costs %s, at least %s for three windows, of %s", w.cause,
			Cores(p.leaderLoad), Cores(g.sustained), s.settings.SplitLoad)
	}
	if w.at == nil {
		return text + "; " + s.hindrance(i, &w)
	}
	if waits := s.splitWaits(i, &w); waits != "" {
		return text + fmt.Sprintf("; to be split, %s; waits: %s", w.at, waits)
	}
	return text + fmt.Sprintf("; to be split now, %s", w.at)
}

// hindrance says why a partition is not split although it is too large or too busy.
func (s *State) hindrance(i uint32, w *splitting) string {
	g := &s.growths[i]
	h := s.hint(g)
	most := permille(int(1000 * s.settings.MostLeft))
	switch w.why {
	case hindOff:
		return "its keyspace splits only when that is asked for"
	case hindOneKey:
		return "one key has nearly all of the bytes, and the versions of a key are never parted"
	case hindHotKey:
		return fmt.Sprintf("a split does not help: %s of the load is on the key %s. It is not tried; "+
			"only spreading that key over several, or reading it from a cache, helps",
			permille(h.hot), h.hotKey)
	case hindAscending:
		return fmt.Sprintf("a split for the load does not help: %s of the writes go to the end, each "+
			"key above the one before, so that the right side would keep all of it. It splits by size, "+
			"and the new end goes to the node with the least load; a hash keyspace, or keys that begin "+
			"with something that varies, spread such writes", permille(int(g.ascending)))
	case hindAcross:
		return fmt.Sprintf("a split costs more than it helps: %s of the load would touch both sides, "+
			"more than %s (%s)", permille(h.byLoad.Across), permille(int(1000*s.settings.MostAcross)),
			h.byLoad)
	case hindOneSided:
		return fmt.Sprintf("a split does not help: the best key leaves one side %s, more than %s (%s)",
			permille(h.byLoad.larger()), most, h.byLoad)
	default:
		if w.cause == TooLarge {
			return "its leader is looking for a key in the middle of its bytes"
		}
		return "its leader has not sampled enough requests to name a key"
	}
}

// splitWaits says what a split waits for that is to be done; empty: for nothing.
func (s *State) splitWaits(i uint32, w *splitting) string {
	p, g := &s.partitions[i], &s.growths[i]
	x := s.inspect(p)
	switch {
	case s.settings.Paused:
		return pausedText
	case p.flying:
		return "an operator is in flight"
	case !x.settled:
		return "its replicas have to be complete, sound and voters"
	case s.leaderOf(p) == noNode:
		return "no leader is known"
	}
	if left := s.splitPause(g); w.cause == TooBusy && left > 0 {
		return fmt.Sprintf("%s, the pause after its last split", left)
	}
	return s.splitLimit(p)
}

// mergeVerdict says in words whether a partition is merged with its neighbour to the right.
func (s *State) mergeVerdict(i uint32) string {
	j, why := s.mergesWith(i)
	if j == none32 {
		return "no: " + s.whyNoMerge(i, why)
	}
	p, q := &s.partitions[i], &s.partitions[j]
	text := fmt.Sprintf("with %s, %s together", q.id, size(p.bytes+q.bytes))
	switch waits := s.mergeWaits(i, j); {
	case !s.settings.Merges:
		return text + "; this core does not merge by itself"
	case s.settings.Paused:
		return text + "; waits: " + pausedText
	case waits != "":
		return text + "; waits: " + waits
	}
	if n := s.apart(p, q); n > 0 {
		return text + fmt.Sprintf("; %s has to be moved to the other's nodes first",
			plural(n, "replica"))
	}
	if limit := s.splitLimit(p); limit != "" {
		return text + "; waits: " + limit
	}
	return text
}

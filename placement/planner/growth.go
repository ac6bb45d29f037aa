package planner

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Key is a user key. It is written as keys are for people.
type Key []byte

func (k Key) String() string { return keys.Pretty(k) }

// MarshalText is for JSON.
func (k Key) MarshalText() ([]byte, error) {
	quoted := strconv.QuoteToASCII(string(k))
	return []byte(quoted[1 : len(quoted)-1]), nil
}

// Growth is what the leader of a partition says of its load and of where it could be split.
type Growth struct {
	// Sustained is the least load of the last three windows of measurement, and Peak the highest of
	// the last ten minutes, both for the leader.
	Sustained, Peak Cores
	// ByLoad and BySize are the keys that divide the load and the bytes best; nil: none is known.
	ByLoad, BySize *SplitPoint
	// OneKey: one key has so many of the bytes that no other divides them.
	OneKey bool
	// HotKey is the key with the largest part of the load, and Hot that part in thousandths; 0: not
	// known.
	HotKey Key
	Hot    int
	// Ascending is the part of the writes, in thousandths, that is beyond all keys there were, each
	// beyond the one before.
	Ascending int
}

// SplitPoint is a key at which a partition could be split. The parts are in thousandths, of the
// load or of the bytes; Across is what touches both sides.
type SplitPoint struct {
	Key                 Key
	Left, Right, Across int
}

// larger is what the side that keeps more would keep.
func (p *SplitPoint) larger() int { return max(p.Left, p.Right) + p.Across }

func (p *SplitPoint) String() string {
	text := fmt.Sprintf("%s left and %s right of %s", permille(p.Left), permille(p.Right), p.Key)
	if p.Across > 0 {
		text += fmt.Sprintf(", %s on both sides", permille(p.Across))
	}
	return text
}

func permille(n int) string { return fmt.Sprintf("%.0f %%", float64(n)/10) }

func (g *Growth) validate() error {
	if g.Sustained < 0 || g.Peak < 0 || g.Hot < 0 || g.Hot > 1000 || g.Ascending < 0 ||
		g.Ascending > 1000 {
		return fmt.Errorf("load %s and %s, hot key %d, ascending %d: a value is out of range",
			g.Sustained, g.Peak, g.Hot, g.Ascending)
	}
	for _, p := range []*SplitPoint{g.ByLoad, g.BySize} {
		if p != nil && (len(p.Key) == 0 || p.Left < 0 || p.Right < 0 || p.Across < 0 ||
			p.Left+p.Right+p.Across > 1000) {
			return fmt.Errorf("split key %s: %d, %d and %d thousandths: a value is out of range", p.Key,
				p.Left, p.Right, p.Across)
		}
	}
	return nil
}

// growth is of every partition, in 40 bytes. What only few have is a hint.
type growth struct {
	left, right     keys.PartitionID
	sustained, peak uint32
	resized         uint32 // Unix seconds
	// hint is its place in hints, 0 if there is none.
	hint      uint32
	ascending uint16
	// measured is for how long, in seconds, up to an hour.
	measured uint16
	// busyShare and byteShare are the parts, in thousandths, that would have gone to the right when
	// a key was last known.
	busyShare, byteShare uint16
	// founded and asked: its start is not merged away.
	founded, asked bool
}

// hints are the split keys of the partitions that have some.
type hints struct {
	all    []hint
	unused []uint32
}

// hint is what a Growth has that few partitions have.
type hint struct {
	byLoad, bySize *SplitPoint
	hotKey         Key
	hot            int
	oneKey         bool
}

var noHint hint

func (h *hints) at(i uint32) *hint {
	if i == 0 {
		return &noHint
	}
	return &h.all[i-1]
}

// hint is what only few partitions have of a growth.
func (s *State) hint(g *growth) *hint { return s.hints.at(g.hint) }

// set puts a hint at a place, or takes it from there if it says nothing, and returns the place.
func (h *hints) set(i uint32, to hint) uint32 {
	empty := to.byLoad == nil && to.bySize == nil && to.hot == 0 && !to.oneKey
	switch {
	case empty && i == 0:
		return 0
	case empty:
		h.all[i-1] = hint{}
		h.unused = append(h.unused, i)
		return 0
	case i == 0 && len(h.unused) > 0:
		i = h.unused[len(h.unused)-1]
		h.unused = h.unused[:len(h.unused)-1]
	case i == 0:
		h.all = append(h.all, hint{})
		i = uint32(len(h.all))
	}
	h.all[i-1] = to
	return i
}

// setGrowth takes what is known of where a partition grows. What its leader has not measured for
// long enough is as before.
func (s *State) setGrowth(i uint32, d *Partition) {
	g, in := &s.growths[i], &d.Growth
	g.left, g.right, g.founded, g.asked = d.Left, d.Right, d.SplitFrom == 0, d.Asked
	g.resized = seconds(d.Resized)
	g.measured = uint16(min(d.Measured.Seconds(), 3600))
	g.sustained, g.peak = saturated(in.Sustained), saturated(in.Peak)
	if d.Measured >= s.settings.LoadWindow || in.Ascending > 0 {
		g.ascending = uint16(in.Ascending)
	}
	g.hint = s.hints.set(g.hint, hint{byLoad: clonePoint(in.ByLoad), bySize: clonePoint(in.BySize),
		hotKey: slices.Clone(in.HotKey), hot: in.Hot, oneKey: in.OneKey})
	if p := in.BySize; p != nil {
		g.byteShare = uint16(p.Right)
	}
	switch p := in.ByLoad; {
	case in.Ascending >= sequential:
		g.busyShare = uint16(in.Ascending)
	case p != nil:
		g.busyShare = uint16(p.Right + p.Across/2)
	}
	if g.ascending >= sequential && !g.founded && g.resized != 0 {
		s.newEnds[i] = struct{}{}
	}
}

func clonePoint(p *SplitPoint) *SplitPoint {
	if p == nil {
		return nil
	}
	return &SplitPoint{Key: slices.Clone(p.Key), Left: p.Left, Right: p.Right, Across: p.Across}
}

// dropGrowth forgets it.
func (s *State) dropGrowth(i uint32) {
	g := &s.growths[i]
	s.hints.set(g.hint, hint{})
	*g = growth{}
	delete(s.merged, i)
	delete(s.newEnds, i)
}

// inherit gives a partition that has just split off its part of what is known of its parent, until
// its own leader has measured.
//
// INVARIANT: what a partition costs counts somewhere from the moment it splits. Otherwise the nodes
// of a hot one look idle when it has split, and are given more.
func (s *State) inherit(d *Partition) {
	j, ok := s.partitionIndex[d.SplitFrom]
	if !ok || d.SplitFrom == 0 || d.Measured >= s.settings.LoadWindow {
		return
	}
	parent, g := &s.partitions[j], &s.growths[j]
	fly, flies := s.flightOf[j]
	if flies {
		s.project(&s.flights[fly], -1)
	}
	s.account(parent, -1)
	right := int64(g.byteShare)
	if right == 0 {
		right = 500
	}
	switch {
	case d.Bytes > 0:
	case parent.epoch.Generation < d.Epoch.Generation:
		d.Bytes = parent.bytes / 1000 * right
		parent.bytes -= d.Bytes
	case right < 1000: // the parent's bytes are those of the left part already
		d.Bytes = parent.bytes / (1000 - right) * right
	}
	if right = int64(g.busyShare); right == 0 {
		right = 500
	}
	part := func(of *uint32) Cores {
		gives := uint32(int64(*of) * right / 1000)
		*of -= gives
		return Cores(gives)
	}
	d.LeaderLoad, d.FollowerLoad = part(&parent.leaderLoad), part(&parent.followerLoad)
	if d.Growth.Ascending == 0 {
		d.Growth.Ascending = int(g.ascending)
	}
	g.ascending = 0
	s.account(parent, 1)
	if flies {
		s.project(&s.flights[fly], 1)
	}
	s.touch(j)
}

// touchLeftOf has the left neighbour of a small partition looked at again: the two may be merged.
func (s *State) touchLeftOf(i uint32) {
	p, g := &s.partitions[i], &s.growths[i]
	if !s.settings.Merges || g.left == 0 || p.bytes >= s.keyspaces[p.keyspace].info.MergeSize {
		return
	}
	if j, ok := s.partitionIndex[g.left]; ok {
		s.touch(j)
	}
}

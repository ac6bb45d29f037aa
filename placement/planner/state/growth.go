package state

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Sequential is the part of the writes, in thousandths, from which on they count as ascending.
const Sequential = 500

// TailFor is how long after its split the new tail of ascending keys is given to another leader.
const TailFor = 5 * time.Minute

// maxMeasured is the longest time of measurement that a record keeps.
const maxMeasured = time.Hour

// evenly is the part, in thousandths, that goes to the right if nothing is known of how a partition
// divides.
const evenly = 500

// Growth is the record of where a partition grows, in 40 bytes. Every partition has one; what only
// few partitions have is in a Hint.
type Growth struct {
	// Left and Right are the neighbours; 0 if there is none.
	Left, Right keys.PartitionID
	// Sustained and peak are loads of the leader, as in planner.Growth, in millionths of a processor.
	Sustained, peak uint32
	// Resized is when the partition last split, split off or merged, in Unix seconds; 0: never.
	Resized uint32
	// hint is the index of the Hint, counted from 1; 0 if there is none.
	hint uint32
	// Ascending is the part of ascending writes, in thousandths.
	Ascending uint16
	// measured is for how many seconds the leader has measured, up to maxMeasured.
	measured uint16
	// busyShare and byteShare are the parts of load and bytes, in thousandths, that the right side
	// would get at the keys that were known last; 0: none was known yet.
	busyShare, byteShare uint16
	// Founded and Asked say why the start of the partition is never merged away: it was founded with
	// the keyspace, or a caller asked for the boundary.
	Founded, Asked bool
}

// MeasuredFor returns for how long the leader of the partition has measured, up to maxMeasured.
func (g *Growth) MeasuredFor() time.Duration { return time.Duration(g.measured) * time.Second }

// growths holds what is known of where partitions grow, and of what they have grown from.
type growths struct {
	// Growths has a record for every partition, by the same index.
	Growths []Growth
	hints   hints
	// merges holds the last merge of a partition, by index.
	merges map[uint32]Merge
	// tails holds, by index, every partition that may be a new tail of ascending keys, and some that
	// no longer are.
	tails map[uint32]struct{}
}

// Hint returns the hint of a partition, an empty one if it has none. It must not be changed.
func (t *growths) Hint(g *Growth) *Hint { return t.hints.at(g.hint) }

// forget forgets where a partition grew.
func (t *growths) forget(i uint32) {
	g := &t.Growths[i]
	t.hints.set(g.hint, Hint{})
	*g = Growth{}
	delete(t.merges, i)
	delete(t.tails, i)
}

// Hint has the keys at which a partition could be split, as in planner.Growth.
type Hint struct {
	ByLoad, BySize *planner.SplitPoint
	HotKey         planner.Key
	Hot            int
	OneKey         bool
}

var noHint Hint

// hints holds the hints of the partitions that have one.
type hints struct {
	all    []Hint
	unused []uint32
}

func (h *hints) at(i uint32) *Hint {
	if i == 0 {
		return &noHint
	}
	return &h.all[i-1]
}

// set stores a hint at an index and returns the index. It gives an index to a hint that has none,
// and frees the index of a hint that says nothing.
func (h *hints) set(i uint32, to Hint) uint32 {
	empty := to.ByLoad == nil && to.BySize == nil && to.Hot == 0 && !to.OneKey
	switch {
	case empty && i == 0:
		return 0
	case empty:
		h.all[i-1] = Hint{}
		h.unused = append(h.unused, i)
		return 0
	case i == 0 && len(h.unused) > 0:
		i = h.unused[len(h.unused)-1]
		h.unused = h.unused[:len(h.unused)-1]
	case i == 0:
		h.all = append(h.all, Hint{})
		i = uint32(len(h.all))
	}
	h.all[i-1] = to
	return i
}

// setGrowth stores where a partition grows. A part of ascending writes that the leader has not
// measured for long enough does not replace the part known before.
func (s *State) setGrowth(i uint32, d *planner.Partition) {
	g, in := &s.Growths[i], &d.Growth
	g.Left, g.Right, g.Founded, g.Asked = d.Left, d.Right, d.SplitFrom == 0, d.Asked
	g.Resized = seconds(d.Resized)
	g.measured = uint16(min(d.Measured, maxMeasured).Seconds())
	g.Sustained, g.peak = saturated(in.Sustained), saturated(in.Peak)
	if d.Measured >= s.settings.LoadWindow || in.Ascending > 0 {
		g.Ascending = uint16(in.Ascending)
	}
	g.hint = s.hints.set(g.hint, Hint{ByLoad: clonePoint(in.ByLoad), BySize: clonePoint(in.BySize),
		HotKey: slices.Clone(in.HotKey), Hot: in.Hot, OneKey: in.OneKey})
	if p := in.BySize; p != nil {
		g.byteShare = uint16(p.Right)
	}
	switch p := in.ByLoad; {
	case in.Ascending >= Sequential:
		g.busyShare = uint16(in.Ascending)
	case p != nil:
		g.busyShare = uint16(p.Right + p.Across/2)
	}
	if g.Ascending >= Sequential && !g.Founded && g.Resized != 0 {
		s.tails[i] = struct{}{}
	}
}

func clonePoint(p *planner.SplitPoint) *planner.SplitPoint {
	if p == nil {
		return nil
	}
	out := *p
	out.Key = slices.Clone(p.Key)
	return &out
}

// inherit gives a partition that has just split off a part of the bytes and the load of its parent.
// The part counts until the leader of the new partition has measured.
//
// INVARIANT: the cost of a partition counts somewhere from the moment the partition splits.
// Otherwise the nodes of a hot partition would look idle after its split, and would be given more.
func (s *State) inherit(d *planner.Partition) {
	j, ok := s.PartitionIndex(d.SplitFrom)
	if !ok || d.Measured >= s.settings.LoadWindow {
		return
	}
	parent, g := &s.Partitions[j], &s.Growths[j]
	s.takeOut(j)
	right := int64(g.byteShare)
	if right == 0 {
		right = evenly
	}
	switch {
	case d.Bytes > 0:
	case parent.Epoch.Generation < d.Epoch.Generation:
		d.Bytes = parent.Bytes / 1000 * right
		parent.Bytes -= d.Bytes
	case right < 1000: // the bytes of the parent are those of the left side already
		d.Bytes = parent.Bytes / (1000 - right) * right
	}
	if right = int64(g.busyShare); right == 0 {
		right = evenly
	}
	part := func(of *uint32) planner.Cores {
		gives := uint32(int64(*of) * right / 1000)
		*of -= gives
		return planner.Cores(gives)
	}
	d.LeaderLoad, d.FollowerLoad = part(&parent.LeaderLoad), part(&parent.FollowerLoad)
	if d.Growth.Ascending == 0 {
		d.Growth.Ascending = int(g.Ascending)
	}
	g.Ascending = 0
	s.putBack(j)
	s.touch(j)
}

// touchLeftOf lists the left neighbour of a small partition as changed: the two could be merged.
func (s *State) touchLeftOf(i uint32) {
	p, g := &s.Partitions[i], &s.Growths[i]
	if !s.settings.Merges || g.Left == 0 || p.Bytes >= s.Keyspaces[p.Keyspace].Wants.MergeSize {
		return
	}
	if j, ok := s.PartitionIndex(g.Left); ok {
		s.touch(j)
	}
}

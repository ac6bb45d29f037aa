package planner_test

import (
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// memory is what a State keeps of what it was told before, in plain maps: what leaders that have
// not measured for long enough would otherwise make forgotten. What is remembered of a partition's
// load and of the writes to its end is in its Partition in the world.
type memory struct {
	// shares are the parts, in thousandths, that would go to the right, as last known.
	shares map[keys.PartitionID]shares
	merged map[keys.PartitionID]mergedPair
}

type shares struct{ busy, bytes int64 }

// mergedPair is what two partitions were like when they merged.
type mergedPair struct {
	at     time.Time
	peak   planner.Cores
	calm   time.Duration
	leader keys.NodeID
}

func newMemory() memory {
	return memory{shares: map[keys.PartitionID]shares{},
		merged: map[keys.PartitionID]mergedPair{}}
}

// remember is what is known of a partition when it is told of: what its leader has measured, or
// what was known before; of one that has just split off, its part of what was known of its parent.
func (w *world) remember(p planner.Partition) planner.Partition {
	old, known := w.partitions[p.ID]
	told := p.Growth
	switch {
	case p.Measured >= w.state.Settings().LoadWindow:
	case known:
		p.LeaderLoad, p.FollowerLoad = old.LeaderLoad, old.FollowerLoad
		if p.Growth.Ascending == 0 {
			p.Growth.Ascending = old.Growth.Ascending
		}
	default:
		w.inherit(&p)
		told = p.Growth
	}
	parts := w.memory.shares[p.ID]
	if told.BySize != nil {
		parts.bytes = int64(told.BySize.Right)
	}
	if told.Ascending >= state.Sequential {
		parts.busy = int64(told.Ascending)
	} else if told.ByLoad != nil {
		parts.busy = int64(told.ByLoad.Right + told.ByLoad.Across/2)
	}
	w.memory.shares[p.ID] = parts
	return p
}

// inherit gives a partition that has split off its part of its parent, if that is known.
func (w *world) inherit(child *planner.Partition) {
	parent, ok := w.partitions[child.SplitFrom]
	if !ok {
		return
	}
	parts := w.memory.shares[parent.ID]
	if parts.busy == 0 {
		parts.busy = 500
	}
	if parts.bytes == 0 {
		parts.bytes = 500
	}
	switch {
	case child.Bytes > 0:
	case parent.Epoch.Generation < child.Epoch.Generation: // its bytes are those of both
		child.Bytes = parent.Bytes / 1000 * parts.bytes
		parent.Bytes -= child.Bytes
	case parts.bytes < 1000:
		child.Bytes = parent.Bytes / (1000 - parts.bytes) * parts.bytes
	}
	child.LeaderLoad = parent.LeaderLoad * planner.Cores(parts.busy) / 1000
	child.FollowerLoad = parent.FollowerLoad * planner.Cores(parts.busy) / 1000
	parent.LeaderLoad -= child.LeaderLoad
	parent.FollowerLoad -= child.FollowerLoad
	if child.Growth.Ascending == 0 {
		child.Growth.Ascending = parent.Growth.Ascending
	}
	parent.Growth.Ascending = 0
	w.partitions[parent.ID] = parent
}

// rememberMerge notes what two partitions were like, and counts both as the left one.
func (w *world) rememberMerge(left, right keys.PartitionID) {
	p, q := w.partitions[left], w.partitions[right]
	w.memory.merged[left] = mergedPair{at: w.now, peak: w.peak(p) + w.peak(q),
		calm: min(w.calm(p), w.calm(q)), leader: leads(p)}
	p.LeaderLoad = min(p.LeaderLoad+q.LeaderLoad, math.MaxUint32)
	p.FollowerLoad = min(p.FollowerLoad+q.FollowerLoad, math.MaxUint32)
	w.partitions[left] = p
}

// peak is what a partition has cost at most in the last ten minutes.
func (w *world) peak(p planner.Partition) planner.Cores {
	peak := p.Growth.Peak
	if m, ok := w.memory.merged[p.ID]; ok && w.now.Sub(m.at) < state.PeakFor {
		peak = max(peak, m.peak)
	}
	return peak
}

// calm is for how long it has cost no more than that.
func (w *world) calm(p planner.Partition) time.Duration {
	calm := min(p.Measured, time.Hour)
	if m, ok := w.memory.merged[p.ID]; ok && m.leader == leads(p) &&
		w.now.Sub(m.at) < w.state.Settings().MergePause {
		calm = max(calm, m.calm+w.now.Sub(m.at))
	}
	return calm
}

// leads is the node that leads a partition, 0 if none of those that hold it does.
func leads(p planner.Partition) keys.NodeID {
	for _, r := range p.Replicas {
		if r.Node == p.Leader {
			return p.Leader
		}
	}
	return 0
}

// recall tells a State of everything at once what merged before.
func (w *world) recall(s *state.State) {
	for id, m := range w.memory.merged {
		if i, ok := s.PartitionIndex(id); ok {
			s.Remember(i, state.Merge{At: uint32(m.at.Unix()), Calm: m.calm,
				Peak: uint32(min(m.peak, math.MaxUint32)), Leader: s.NodeIndex(m.leader)})
		}
	}
}

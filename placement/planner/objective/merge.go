package objective

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// NoMerge says why a partition is not merged with its right neighbour.
type NoMerge uint8

const (
	mergeable NoMerge = iota
	// LargeAlone: the partition is too large.
	LargeAlone
	// LargeTogether: the two are too large together.
	LargeTogether
	// NoRightNeighbour: the partition is the last one.
	NoRightNeighbour
	// NeighbourChanges: the two do not name each other as neighbours, as while one of them splits.
	NeighbourChanges
	// MergeByRequest: the keyspace merges only on request.
	MergeByRequest
	// BoundaryFounded: the keyspace was created with the boundary between the two.
	BoundaryFounded
	// BoundaryAsked: a caller asked for the boundary.
	BoundaryAsked
	// BusyTogether: the two have had too much load of late.
	BusyTogether
	// NotCalmLongEnough: the load of the two has not been low for long enough, as far as is known.
	NotCalmLongEnough
)

// MergesWith returns the right neighbour that a partition is to be merged with, as far as the sizes
// and loads of the two say, or NoPartition and the reason.
func (o *Objective) MergesWith(i uint32) (right uint32, why NoMerge) {
	p, g := &o.state.Partitions[i], &o.state.Growths[i]
	ks := &o.state.Keyspaces[p.Keyspace].Wants
	if p.Bytes >= ks.MergeSize {
		return state.NoPartition, LargeAlone
	}
	j, ok := o.state.PartitionIndex(g.Right)
	if !ok {
		return state.NoPartition, NoRightNeighbour
	}
	q, h := &o.state.Partitions[j], &o.state.Growths[j]
	switch {
	case q.Keyspace != p.Keyspace || h.Left != p.ID:
		return state.NoPartition, NeighbourChanges
	case ks.NoAuto:
		return state.NoPartition, MergeByRequest
	case h.Founded:
		return state.NoPartition, BoundaryFounded
	case h.Asked:
		return state.NoPartition, BoundaryAsked
	case p.Bytes+q.Bytes >= ks.MergeSize:
		return state.NoPartition, LargeTogether
	case o.state.PeakOf(i)+o.state.PeakOf(j) >= o.state.Settings().SplitLoad/2:
		return state.NoPartition, BusyTogether
	case min(o.state.CalmFor(i), o.state.CalmFor(j)) < o.state.Settings().MergePause:
		return state.NoPartition, NotCalmLongEnough
	}
	return j, mergeable
}

// MergeWaits says in words what a merge of two neighbours waits for; empty: nothing.
func (o *Objective) MergeWaits(i, j uint32) string {
	p, q := &o.state.Partitions[i], &o.state.Partitions[j]
	if q.InFlight || p.InFlight {
		return fmt.Sprintf("an operator of %s or %s", p.ID, q.ID)
	}
	for _, k := range []uint32{i, j} {
		if left := o.mergePause(k); left > 0 {
			return fmt.Sprintf("%s, the pause after the last split or merge of %s",
				left, o.state.Partitions[k].ID)
		}
		at := &o.state.Partitions[k]
		if x := o.Inspect(at); !x.Settled || x.Violations > 0 || x.Leaving > 0 ||
			o.state.LeaderOf(at) == state.NoNode {
			return fmt.Sprintf("all replicas of %s to be sound, and its leader to be known", at.ID)
		}
	}
	return ""
}

// Merging says whether a partition is to be merged with a neighbour. Until it is, it must not be
// moved for balance.
func (o *Objective) Merging(i uint32) bool {
	if !o.state.Settings().Merges {
		return false
	}
	if p := &o.state.Partitions[i]; p.Bytes >= o.state.Keyspaces[p.Keyspace].Wants.MergeSize {
		return false
	}
	if j, _ := o.MergesWith(i); j != state.NoPartition {
		return true
	}
	if k, ok := o.state.PartitionIndex(o.state.Growths[i].Left); ok {
		j, _ := o.MergesWith(k)
		return j == i
	}
	return false
}

// mergePause is how much is left of the pause after the last split or merge of a partition. A merge
// of small and calm partitions is no reason against another merge, so the pause after a merge is
// the short one: many partitions that have become small merge in a few rounds.
func (o *Objective) mergePause(i uint32) time.Duration {
	resized, pause := o.state.Growths[i].Resized, o.state.Settings().MergePause
	if m, found := o.state.LastMerge(i); found && resized <= m.At {
		pause = min(pause, o.state.Settings().SplitPause)
	}
	return o.state.LeftOf(resized, pause)
}

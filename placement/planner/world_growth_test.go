package planner_test

import (
	"maps"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// checkResize holds a split or merge against what it is for.
func (w *world) checkResize(op planner.Operator) {
	w.t.Helper()
	p, ks := w.partitions[op.Partition], w.keyspaces[w.partitions[op.Partition].Keyspace]
	ks.EnsureDefaults()
	if ks.NoAuto || op.Epoch != p.Epoch {
		w.t.Fatalf("%s: at %s, it is %s; no automatic splits: %v", op.Title(), op.Epoch, p.Epoch,
			ks.NoAuto)
	}
	resizing := map[keys.NodeID]int{}
	for _, f := range w.inFlight {
		if f.Split || f.Right != 0 {
			resizing[w.partitions[f.Partition].Leader]++
		}
		if f.Right == op.Partition || f.Partition == op.Right && op.Right != 0 {
			w.t.Fatalf("%s: one of them is in flight: %+v", op.Title(), f)
		}
	}
	if n := resizing[p.Leader]; n >= w.state.Settings().NodeSplits {
		w.t.Fatalf("%s: %d that %s leads split already", op.Title(), n, p.Leader)
	}
	for _, r := range p.Replicas {
		if r.Role != planner.Voter {
			w.t.Fatalf("%s: it has a %s", op.Title(), r.Role)
		}
	}
	if op.Kind == planner.Split {
		if len(op.Key) == 0 || p.Growth.ByLoad == nil && p.Growth.BySize == nil {
			w.t.Fatalf("%s: no such key is known", op.Title())
		}
		return
	}
	q := w.partitions[op.Right]
	if p.Right != q.ID || q.Left != p.ID || q.Keyspace != p.Keyspace || q.Epoch != op.RightEpoch {
		w.t.Fatalf("%s: %+v and %+v are no neighbours", op.Title(), p, q)
	}
	if p.Bytes+q.Bytes >= ks.MergeSize {
		w.t.Fatalf("%s: %d bytes together", op.Title(), p.Bytes+q.Bytes)
	}
	if nodesOf(p) != nodesOf(q) {
		w.t.Fatalf("%s: on %v and on %v", op.Title(), nodesOf(p), nodesOf(q))
	}
}

// nodesOf are the nodes of a partition's replicas.
func nodesOf(p planner.Partition) (nodes [rules.MaxReplicas]keys.NodeID) {
	for i, r := range p.Replicas {
		nodes[i] = r.Node
	}
	slices.Sort(nodes[:len(p.Replicas)])
	return nodes
}

// split carries a split out at once. What the two halves cost is not known yet.
func (w *world) split(op planner.Operator) keys.PartitionID {
	w.t.Helper()
	parent := w.partitions[op.Partition]
	at := op.Reason.Growth.At
	child := parent
	child.ID = slices.Max(slices.Collect(maps.Keys(w.partitions))) + 1
	child.SplitFrom, child.Left, child.Ended = parent.ID, parent.ID, time.Time{}
	child.Replicas = slices.Clone(parent.Replicas)
	right := parent.Right
	parent.Right = child.ID
	parent.Epoch.Generation++
	child.Epoch.Generation = parent.Epoch.Generation
	parent.Resized, child.Resized, parent.Ended = w.now, w.now, w.now
	child.Bytes = parent.Bytes * int64(at.Right) / 1000
	parent.Bytes -= child.Bytes
	parent.Growth, child.Growth = planner.Growth{}, planner.Growth{}
	parent.Measured, child.Measured = 0, 0
	parent.LeaderLoad, parent.FollowerLoad = 0, 0
	child.LeaderLoad, child.FollowerLoad = 0, 0
	if w.childFirst {
		w.must(w.setPartition(child))
	}
	w.must(w.setPartition(parent))
	if !w.childFirst {
		w.must(w.setPartition(child))
	}
	if right != 0 {
		q := w.partitions[right]
		q.Left = child.ID
		w.must(w.setPartition(q))
	}
	return child.ID
}

// merge carries a merge out at once.
func (w *world) merge(op planner.Operator) {
	w.t.Helper()
	p, q := w.partitions[op.Partition], w.partitions[op.Right]
	w.state.Merged(w.now, p.ID, q.ID)
	w.rememberMerge(p.ID, q.ID)
	p.Bytes += q.Bytes
	p.Right = q.Right
	p.Epoch.Generation = max(p.Epoch.Generation, q.Epoch.Generation) + 1
	p.Resized, p.Ended, p.Measured, p.Growth = w.now, w.now, 0, planner.Growth{}
	w.removePartition(q.ID)
	w.must(w.setPartition(p))
	if p.Right != 0 {
		r := w.partitions[p.Right]
		r.Left = p.ID
		w.must(w.setPartition(r))
	}
}

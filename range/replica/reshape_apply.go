package replica

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The replicas of a partition are those of its descriptor. The descriptor lies in the state beside
// the applied index, changes by entries of the log, and travels with snapshots. The group's
// configuration is derived from it, so the two cannot differ.

// Configuration implements group.Configured.
func (r *Replica) Configuration() group.Configuration {
	return group.ConfigurationOf(r.Descriptor())
}

// Settled reports whether a majority knows, on disk, that the present descriptor is committed. Only
// then may a replica be destroyed that the descriptor no longer names: until then others may ask
// for its vote.
//
// INVARIANT: an entry that a leader proposes when it knows an earlier one to be committed is stored
// together with that knowledge. Entries between them, which were proposed before, are not. So this
// replica, which leads when its descriptor is reported, has applied an entry behind all that were
// in its log when the descriptor was applied. If it was elected later, or has the descriptor from
// its state or a snapshot, the first entry of its term is such an entry.
func (r *Replica) Settled() bool {
	index, _ := r.Applied()
	return index > r.m.SettledBehind()
}

// Urgent reports whether requests wait for the apply of an entry on followers. See group.Urgent.
func (r *Replica) Urgent(data []byte) bool {
	switch proposal.KindOf(data) {
	case proposal.KindSplit, proposal.KindFreeze, proposal.KindMerge:
		return true
	}
	return false
}

// ShareOf returns how much of the reserve of a full disk an entry may use. See group.Sharing.
func (r *Replica) ShareOf(data []byte) group.Share { return proposal.ShareOf(data) }

// childState asks the node what a split does for the child.
func (r *Replica) childState(child *clusterpb.Partition) (reshape.ChildState, error) {
	return r.node.Siblings.ChildState(child, r.self)
}

// childApplied tells the node of a child that lies in the state.
func (r *Replica) childApplied(s *reshape.Split) {
	child := keys.PartitionID(s.Right.Id)
	if s.ChildState == reshape.Created {
		r.node.Spans.Split(s.Left, s.Right)
	} else {
		r.node.Spans.Own(s.Left)
	}
	r.node.Logger.Info("a partition has split", "partition", r.id, "replica", r.self, "child", child,
		"at", keys.Pretty(s.Right.Start), "generation", s.Left.Generation)
	r.node.Siblings.Split(s.Right, r.self, s.ChildState, r.Leadership().IsLeader)
}

// narrowLocked forgets the locks in the part that has split off.
func (r *Replica) narrowLocked(s *reshape.Split) {
	start := string(keys.UserKey(s.Right, s.Right.Start))
	var gone []concurrency.Change
	r.m.Mu.Locks.Each(start, "", func(l *concurrency.Lock) bool {
		gone = append(gone, concurrency.Change{Key: l.Key, Released: true})
		return true
	})
	r.eval.RequeueLocked(r.m.Mu.Locks.Apply(gone))
}

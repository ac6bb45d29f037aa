package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxSyncMicros limits the sync time that is believed from a node's report: one hour.
const maxSyncMicros = 3_600_000_000

// NoteSlow stores that a node's disk has become slow, or is no longer slow, with an event.
func (s *Nodes) NoteSlow(ctx context.Context, id keys.NodeID, stats *clusterpb.NodeStats,
	now time.Time) error {
	n := &clusterpb.Node{}
	revision, err := meta.Load(s.store.Stale(), meta.NodeKey(id), n)
	if err != nil || revision == 0 || stats.DiskSlow == (n.DiskSlowSinceUnixMs != 0) {
		return err
	}
	text := fmt.Sprintf("has a slow disk, %v a sync: others lead",
		(time.Duration(min(stats.SyncMicros, maxSyncMicros)) * time.Microsecond).Round(time.Millisecond))
	if stats.DiskSlow {
		n.DiskSlowSinceUnixMs = max(1, now.UnixMilli())
	} else {
		text = "has no slow disk any more"
		if slow := now.Sub(time.UnixMilli(n.DiskSlowSinceUnixMs)); slow > 0 {
			text += fmt.Sprintf(", after %s", slow.Round(time.Second))
		}
		n.DiskSlowSinceUnixMs = 0
	}
	_, err = s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "node", ToNode: uint64(id), Outcome: text},
		[]*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)},
		store.Put(meta.NodeKey(id), meta.Encode(n)))
	return err
}

// NoteSilence stores since when a node has been silent, or that it has answered again, with an
// event.
func (s *Nodes) NoteSilence(ctx context.Context, id keys.NodeID, now time.Time) error {
	v := s.store.Stale()
	n := &clusterpb.Node{}
	revision, err := meta.Load(v, meta.NodeKey(id), n)
	if err != nil || revision == 0 {
		return err
	}
	alive, err := v.Get(meta.AliveKey(id))
	if err != nil {
		return err
	}
	text := "answers again"
	switch {
	case alive != nil && n.SilentSinceUnixMs != 0:
		if gone := now.Sub(time.UnixMilli(n.SilentSinceUnixMs)); gone > 0 {
			text += fmt.Sprintf(", after %s", gone.Round(time.Second))
		}
		n.SilentSinceUnixMs, n.AliveSinceUnixMs, n.Displaced = 0, now.UnixMilli(), false
	case alive == nil && n.SilentSinceUnixMs == 0:
		n.SilentSinceUnixMs, text = now.UnixMilli(), "does not answer any more"
		if n.Displaced {
			text += ", and another directory is at its address"
		}
	default:
		return nil
	}
	conditions := []*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)}
	_, err = s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "node", ToNode: uint64(id), Outcome: text},
		conditions, store.Put(meta.NodeKey(id), meta.Encode(n)))
	return err
}

// Retire makes a node GONE if no descriptor, no operator and no pending recovery names it.
//
// INVARIANT: no later descriptor can name the node. A node gets a replica only by a recorded
// operator, by the creation of a keyspace, or by a confirmed recovery. An operator that has ended
// is in the table, or has given up its replica id. Operators and the partitions of a new keyspace
// are recorded on condition that the records of their nodes are unchanged since they were ACTIVE.
// The confirmation of a recovery and Retire take turns.
// ACTIVE, and confirming a recovery takes turns with this.
func (s *Nodes) Retire(ctx context.Context, id keys.NodeID) error {
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	n := &clusterpb.Node{}
	revision, err := meta.Load(v, meta.NodeKey(id), n)
	if err != nil || revision == 0 || n.Status != clusterpb.NodeStatus_NODE_MOVING {
		return err
	}
	operators, err := meta.LoadOperators(v)
	if err != nil {
		return err
	}
	for _, o := range operators {
		if keys.NodeID(o.AddNode) == id {
			return nil
		}
	}
	for p, err := range meta.All[clusterpb.Partition](v, []byte(meta.PartitionPrefix)) {
		if err != nil {
			return err
		}
		if steps.ReplicaAt(p, id) != nil {
			return nil
		}
	}
	if waits, err := s.recoversOn(v, id); waits || err != nil {
		return err
	}
	n.Status = clusterpb.NodeStatus_NODE_GONE
	ok, err := s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "node", ToNode: uint64(id),
		Outcome: "decommissioned: it holds nothing any more, and is refused from now on"},
		[]*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)},
		store.Put(meta.NodeKey(id), meta.Encode(n)))
	if ok {
		s.config.Logger.Info("node is decommissioned; its directory can be deleted", "node", id)
	}
	return err
}

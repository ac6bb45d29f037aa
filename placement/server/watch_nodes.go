package server

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

// maxSyncMicros bounds what is believed of a node's disk: an hour.
const maxSyncMicros = 3_600_000_000

// watchNodes stores since when nodes have been silent, and since when they have answered again. It
// is stored so that another leader of the core goes on counting where this one was.
func (c *scheduler) watchNodes(ctx context.Context, now time.Time) error {
	c.mu.Lock()
	var changed []keys.NodeID
	for id, n := range c.nodes {
		if n.Alive == (n.SilentSinceUnixMs != 0) {
			changed = append(changed, id)
		}
	}
	paces := map[keys.NodeID]*clusterpb.NodeStats{}
	for id, s := range c.stats {
		// What a silent node said last stands until it says something else.
		if n := c.nodes[id]; n != nil && n.Alive && s.GetDiskSlow() != (n.DiskSlowSinceUnixMs != 0) {
			paces[id] = s
		}
	}
	c.mu.Unlock()
	for _, id := range changed {
		if err := c.server.noteNode(ctx, id, now); err != nil {
			return err
		}
	}
	for id, s := range paces {
		if err := c.server.noteSlow(ctx, id, s, now); err != nil {
			return err
		}
	}
	return nil
}

// noteSlow stores that a node's disk is slow, or is so no more, and the event.
func (s *Server) noteSlow(ctx context.Context, id keys.NodeID, stats *clusterpb.NodeStats,
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

func (s *Server) noteNode(ctx context.Context, id keys.NodeID, now time.Time) error {
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

// retire lets nodes go that are being decommissioned and that nothing names any more.
func (c *scheduler) retire(ctx context.Context) error {
	c.mu.Lock()
	var empty []keys.NodeID
	for id, n := range c.nodes {
		if c.complete && n.Status == clusterpb.NodeStatus_NODE_MOVING && c.state.ReplicasOn(id) == 0 {
			empty = append(empty, id)
		}
	}
	c.mu.Unlock()
	for _, id := range empty {
		if err := c.server.retire(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// retire makes a node GONE if no descriptor, no operator and no recovery that waits names it.
//
// INVARIANT: no descriptor can come to name it later. A replica comes to a node only by an operator
// that is recorded, by a keyspace that is made, or by a recovery that was confirmed. An operator
// that has ended is in the table, or has given its replica id up. An operator and the partitions of
// a new keyspace are recorded on condition that the nodes' records are as they were when they were
// ACTIVE, and confirming a recovery takes turns with this.
func (s *Server) retire(ctx context.Context, id keys.NodeID) error {
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

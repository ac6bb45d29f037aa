package server

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// watchNodes stores since when nodes have been silent, or have answered again. Because the times
// are stored, the next leader of the core continues from them.
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
		// The last report of a silent node stays valid until the node reports something else.
		if n := c.nodes[id]; n != nil && n.Alive && s.GetDiskSlow() != (n.DiskSlowSinceUnixMs != 0) {
			paces[id] = s
		}
	}
	c.mu.Unlock()
	for _, id := range changed {
		if err := c.server.nodes.NoteSilence(ctx, id, now); err != nil {
			return err
		}
	}
	for id, s := range paces {
		if err := c.server.nodes.NoteSlow(ctx, id, s, now); err != nil {
			return err
		}
	}
	return nil
}

// retire removes nodes that are being decommissioned and that no record names any more.
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
		if err := c.server.nodes.Retire(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

package server

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// notifyTimeout bounds how long it takes to tell a node of orders.
const notifyTimeout = time.Second

// tellNode tells a node that there are orders for it, if it is alive.
func (s *Server) tellNode(ctx context.Context, id keys.NodeID) {
	v := s.store.Stale()
	n := &clusterpb.Node{}
	if revision, err := meta.Load(v, meta.NodeKey(id), n); err != nil || revision == 0 {
		return
	}
	if alive, err := v.Get(meta.AliveKey(id)); err != nil || alive == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if err := s.config.Wake(ctx, n.Address, id); err != nil {
		s.config.Logger.Debug("a node is not told of orders; it asks with its next heartbeat",
			"node", id, "error", err)
	}
}

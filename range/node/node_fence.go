package node

import (
	"context"
	"fmt"
	"io"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// fence refuses messages from nodes that are GONE: nodes of a former majority that return together
// could otherwise continue with replicas here that have not heard yet of their removal.
type fence struct {
	peer.Handler
	node *Node
}

func (f fence) gone(node uint64) bool {
	n := f.node.tables.Load().Node(keys.NodeID(node))
	return n.GetStatus() == clusterpb.NodeStatus_NODE_GONE
}

// HandleMessages implements peer.Handler.
func (f fence) HandleMessages(from uint64, b *peerpb.MessageBatch) {
	if !f.gone(from) {
		f.Handler.HandleMessages(from, b)
	}
}

// HandleSnapshot implements peer.Handler.
func (f fence) HandleSnapshot(ctx context.Context, from uint64, h *peerpb.SnapshotHeader,
	r io.Reader) error {
	if f.gone(from) {
		return fmt.Errorf("node %d is gone for good, and is refused", from)
	}
	return f.Handler.HandleSnapshot(ctx, from, h, r)
}

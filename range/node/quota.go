package node

import (
	"github.com/tidemarkdb/tidemark/range/node/quotas"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// quotaNode is the node as the room of quotas sees it.
type quotaNode struct{ *Node }

var _ quotas.Node = quotaNode{}

// HurryHeartbeat implements quotas.Node.
func (n quotaNode) HurryHeartbeat() { n.reports.Hurry() }

// quotaListener hears of changes of the table for the quotas. It implements table.Listener.
type quotaListener struct{ node *Node }

// KeyspaceChanged implements table.Listener. PartitionsChanged is told of the same keyspaces.
func (quotaListener) KeyspaceChanged(*clusterpb.Keyspace) {}

// PartitionsChanged implements table.Listener.
func (l quotaListener) PartitionsChanged(u *clusterpb.TableUpdate) {
	if len(u.Keyspaces)+len(u.RemovedKeyspaces)+len(u.Nodes)+len(u.RemovedNodes) > 0 {
		l.update(u.Keyspaces, u.RemovedKeyspaces)
	}
}

// Present implements table.Listener.
func (quotaListener) Present() {}

// update has the quotas follow the table.
func (l quotaListener) update(changed []*clusterpb.Keyspace, removed []uint32) {
	nodes := 0
	for _, x := range l.node.tables.Load().Nodes() {
		if x.Status != clusterpb.NodeStatus_NODE_GONE {
			nodes++
		}
	}
	l.node.quotas.Update(changed, removed, nodes)
}

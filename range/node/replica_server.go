package node

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// What the replicas of a node ask it, each question passed to the part of the node that knows.

// replicaServer implements config.Server.
type replicaServer struct{ n *Node }

func (s replicaServer) ClockTrusted() bool { return s.n.clock.Trusted() }

func (s replicaServer) LogBehind() bool { return s.n.host.LogBehind() }

func (s replicaServer) Silent(node keys.NodeID) bool { return s.n.host.Peers().Down(uint64(node)) }

func (s replicaServer) Covering(p *clusterpb.Partition, span keys.Span) []*clusterpb.Partition {
	return s.n.covering(p, span)
}

func (s replicaServer) TransactionLimits(id keys.KeyspaceID) txn.Limits {
	return txn.LimitsOf(s.n.tables.Load().Keyspace(id))
}

// replicaDisks implements config.Disks.
type replicaDisks struct{ n *Node }

func (d replicaDisks) DiskFull() bool { return d.n.base.DiskFull() }

func (d replicaDisks) RoomShare() group.Share { return d.n.disks.Share() }

func (d replicaDisks) PeerTakes(node keys.NodeID, share group.Share) bool {
	return d.n.host.Peers().Takes(uint64(node), share)
}

func (d replicaDisks) WithoutRoom(node keys.NodeID) bool {
	return d.n.host.Peers().WithoutRoom(uint64(node))
}

func (d replicaDisks) AnyWithoutRoom() bool { return d.n.host.Peers().AnyWithoutRoom() }

// replicaClients implements replica.Clients by what the server of the node has told (Config).
type replicaClients struct {
	gone     func(client uint64) bool
	identity func(client uint64) (address, user string)
}

func (c replicaClients) Gone(client uint64) bool { return c.gone != nil && c.gone(client) }

func (c replicaClients) Address(client uint64) (address string) {
	if c.identity != nil {
		address, _ = c.identity(client)
	}
	return address
}

// siblings implements replica.Siblings.
type siblings struct{ n *Node }

func (s siblings) ChildState(child *clusterpb.Partition,
	self keys.ReplicaID) (reshape.ChildState, error) {
	return s.n.lifecycle.Children.State(child, self)
}

func (s siblings) Split(child *clusterpb.Partition, self keys.ReplicaID, how reshape.ChildState,
	leads bool) {
	s.n.lifecycle.Children.Split(child, self, how, leads)
}

func (s siblings) Right(right *clusterpb.Partition, index uint64) (replica.Right, error) {
	return s.n.lifecycle.Merged.Right(right, index)
}

func (s siblings) Open(id keys.PartitionID) *replica.Replica {
	return s.n.lifecycle.Merged.Open(id)
}

func (s siblings) Taken(id keys.PartitionID, by *clusterpb.Partition) {
	s.n.lifecycle.Merged.Taken(id, by)
}

func (s siblings) Froze(id keys.PartitionID, f *clusterpb.Freeze) { s.n.merging.froze(id, f) }

package config

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Server is what replicas ask the server that they are part of. Its methods must be cheap, must not
// block, and are safe for concurrent use.
type Server interface {
	// ClockTrusted reports whether leaders may rely on the clock. A leader that was elected while
	// the clock was not believed serves clients once it is (Replica.ClockTrusted).
	ClockTrusted() bool
	// LogBehind reports that too much waits for the raft log to add more. It is called once for
	// each evaluation.
	LogBehind() bool
	// Silent reports that a node which holds replicas of this node's partitions has not been heard
	// of for an election timeout.
	Silent(node keys.NodeID) bool
	// Covering returns the descriptors that the node knows of the successors of a partition, itself
	// included, and of the partitions that cover a span of internal keys, nearest first. They go
	// into the refusal of a request that was routed by an old table.
	Covering(p *clusterpb.Partition, span keys.Span) []*clusterpb.Partition
	// TransactionLimits returns the limits of a keyspace, of which this node need not have a
	// partition.
	TransactionLimits(keys.KeyspaceID) txn.Limits
}

// Disks reports the room on the disks of this node and of others. Its methods are as those of
// Server.
type Disks interface {
	// DiskFull reports that there is no room for writes at present. It is called once for each
	// evaluation.
	DiskFull() bool
	// RoomShare returns the smallest share of the reserve whose entries are proposed and stored
	// while DiskFull is true; NoShare: no entries are.
	RoomShare() group.Share
	// PeerTakes reports whether another node stores entries of a share.
	PeerTakes(node keys.NodeID, share group.Share) bool
	// WithoutRoom reports that another node's disk is below its reserve, so that its followers
	// store nothing. AnyWithoutRoom reports that this may be so of some node.
	WithoutRoom(node keys.NodeID) bool
	AnyWithoutRoom() bool
}

// Alone is the Server and the Disks of replicas that are no part of a server: the clock is right,
// nothing is behind, silent or full, and no other partition is known.
type Alone struct{}

// ClockTrusted implements Server.
func (Alone) ClockTrusted() bool { return true }

// LogBehind implements Server.
func (Alone) LogBehind() bool { return false }

// Silent implements Server.
func (Alone) Silent(keys.NodeID) bool { return false }

// Covering implements Server.
func (Alone) Covering(p *clusterpb.Partition, _ keys.Span) []*clusterpb.Partition {
	return []*clusterpb.Partition{p}
}

// TransactionLimits implements Server.
func (Alone) TransactionLimits(keys.KeyspaceID) txn.Limits { return txn.Limits{} }

// DiskFull implements Disks.
func (Alone) DiskFull() bool { return false }

// RoomShare implements Disks.
func (Alone) RoomShare() group.Share { return group.NoShare }

// PeerTakes implements Disks.
func (Alone) PeerTakes(keys.NodeID, group.Share) bool { return true }

// WithoutRoom implements Disks.
func (Alone) WithoutRoom(keys.NodeID) bool { return false }

// AnyWithoutRoom implements Disks.
func (Alone) AnyWithoutRoom() bool { return false }

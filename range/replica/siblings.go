package replica

import (
	"errors"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Siblings is what a replica needs of the other replicas on its node, when its partition splits or
// merges. All methods but Froze are called on apply workers.
type Siblings interface {
	// ChildState decides before a split is applied what it does for the child on this node. self is
	// the id of the parent's replica. An error fails that replica. Split is called when the split
	// has been applied; leads is set if the parent's replica leads.
	ChildState(child *clusterpb.Partition, self keys.ReplicaID) (reshape.ChildState, error)
	Split(child *clusterpb.Partition, self keys.ReplicaID, state reshape.ChildState, leads bool)
	// Right finds the replica on this node of a partition that its left neighbour is about to
	// consume. The log of the replica is committed at least up to the index. Right is called before
	// the merge is applied; an error fails the left neighbour's replica.
	Right(right *clusterpb.Partition, index uint64) (Right, error)
	// Open returns the replica of a partition whose span a snapshot of another partition takes
	// over; nil if the replica is not open. From then on the replica is closed to all others. Taken
	// is called after that, with the partition that has taken over, which proves that the two were
	// merged. Only the log of the replica is left.
	Open(id keys.PartitionID) *Replica
	Taken(id keys.PartitionID, by *clusterpb.Partition)
	// Froze is called when a partition was found to be frozen, or has become frozen. It must not
	// block.
	Froze(id keys.PartitionID, f *clusterpb.Freeze)
}

// NoSiblings are the Siblings of a replica that is alone on its node. A split creates the child in
// the state, and nobody is told.
type NoSiblings struct{}

// ChildState implements Siblings.
func (NoSiblings) ChildState(*clusterpb.Partition, keys.ReplicaID) (reshape.ChildState, error) {
	return reshape.Created, nil
}

// Split implements Siblings.
func (NoSiblings) Split(*clusterpb.Partition, keys.ReplicaID, reshape.ChildState, bool) {}

var errNoSiblings = errors.New("the node has no replicas to merge")

// Right implements Siblings.
func (NoSiblings) Right(*clusterpb.Partition, uint64) (Right, error) { return nil, errNoSiblings }

// Open implements Siblings.
func (NoSiblings) Open(keys.PartitionID) *Replica { return nil }

// Taken implements Siblings.
func (NoSiblings) Taken(keys.PartitionID, *clusterpb.Partition) {}

// Froze implements Siblings.
func (NoSiblings) Froze(keys.PartitionID, *clusterpb.Freeze) {}

// Clients is what replicas need to know of the clients that are connected to their node.
type Clients interface {
	// Gone reports that a client no longer waits for the answers to its requests. Its requests that
	// wait for locks are given up then.
	Gone(client uint64) bool
	// Address returns the address from which a client is connected; "" if it is not connected here.
	Address(client uint64) string
}

// NoClients are the Clients of a node of which nobody tells: none of them is known to be gone.
type NoClients struct{}

// Gone implements Clients.
func (NoClients) Gone(uint64) bool { return false }

// Address implements Clients.
func (NoClients) Address(uint64) string { return "" }

package replica

import (
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/spans"
	"github.com/tidemarkdb/tidemark/range/replica/tscache"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Config configures New. New does not keep it.
type Config struct {
	// Partition is the descriptor of a new partition. A descriptor that is in the state already has
	// precedence.
	Partition *clusterpb.Partition
	// Empty is set for a replica that was added to the partition, and that a snapshot will fill. It
	// is false for one of the replicas with which the partition was founded.
	Empty     bool
	ReplicaID keys.ReplicaID
	// State is the database in which this and other partitions lie. It must stay open until Close
	// has returned.
	State *engine.State
	Group config.Group
	// Node is shared by the replicas of a node.
	Node *Node
	// GCWindow is how long overwritten versions stay readable. Default 1 h; negative: no time.
	GCWindow time.Duration
	// CommitWait gives every write commit wait, even if the request does not ask for it.
	CommitWait bool
	// DefaultTTL is the lifetime of a value whose write names no lifetime; 0: the value does not
	// expire.
	DefaultTTL time.Duration
}

// Node holds what the replicas of one node share. It is made once, and not changed after the first
// New.
type Node struct {
	config.Node
	// Resolver, if not nil, releases the locks of committed transactions in other partitions.
	// Without it the records of transactions that have had locks are kept for ever.
	Resolver txn.Resolver
	// Random is the source of jitter. Default: the runtime's.
	Random func() uint64
	// Gone, if not nil, reports that a client no longer waits for the answers to its requests. Its
	// requests that wait for locks are given up then.
	Gone func(client uint64) bool
	// ClientAddress, if not nil, returns the address from which a client is connected; "" if it is
	// not connected here.
	ClientAddress func(client uint64) string
	// ChildState, if not nil, decides before a split is applied what it does for the child on this
	// node. self is the id of the parent's replica. An error fails that replica. Split is called
	// when the split has been applied; leads is set if the parent's replica leads. Both are called
	// on apply workers.
	ChildState func(child *clusterpb.Partition, self keys.ReplicaID) (reshape.ChildState, error)
	Split      func(child *clusterpb.Partition, self keys.ReplicaID, state reshape.ChildState,
		leads bool)
	// Right, if not nil, finds the replica on this node of a partition that its left neighbour is
	// about to consume. The log of the replica is committed at least up to the index. Right is
	// called on apply workers, before the merge is applied; an error fails the left neighbour's
	// replica.
	Right func(right *clusterpb.Partition, index uint64) (Right, error)
	// Taken, if not nil, is called after a snapshot of the partition by has taken over the span of
	// the replica of another partition, which proves that they were merged. Only the log of that
	// replica is left. Open, if not nil, returns such a replica, which from then on is closed to
	// all others; nil if the replica is not open.
	Taken func(id keys.PartitionID, by *clusterpb.Partition)
	Open  func(id keys.PartitionID) *Replica
	// Froze, if not nil, is called when a partition was found to be frozen, or has become frozen.
	// It must not block.
	Froze func(id keys.PartitionID, f *clusterpb.Freeze)
	// Reads serves requests that read several partitions.
	Reads read.Multi
	// Spans says which replica has which span of the state.
	Spans spans.Table
	// locking configures the concurrency managers of all partitions.
	locking concurrency.Config
	budgets
}

// budgets bound what the replicas of a node take together.
type budgets struct {
	recent *proposal.Budget
	reads  *tscache.Budget
	// vacant bounds the memory in which replicas remember spans without values.
	vacant *vacant.Budget
	// counting paces the counts that a split needs.
	counting *admission.Pacer
}

// Prepare sets defaults. It is called once, before the first New.
func (n *Node) Prepare() error {
	if err := n.Node.Prepare(); err != nil {
		return err
	}
	if n.Random == nil {
		n.Random = rand.Uint64
	}
	n.recent = proposal.NewBudget(int(n.TotalRecentBytes / proposal.RecentSlotBytes))
	n.reads = tscache.NewBudget(n.TotalReadBytes)
	n.vacant = vacant.NewBudget(int64(n.TotalVacantBytes))
	n.Metrics.Vacant.Store(n.vacant)
	n.Reads.Init(&n.Node)
	n.counting = admission.NewPacer(admission.Count, n.Load)
	n.prepareLocking()
	return nil
}

// prepareLocking makes the concurrency managers' configuration.
func (n *Node) prepareLocking() {
	c := &n.locking
	c.Metrics, c.Logger, c.Random = n.Metrics.Locking, n.Logger, n.Random
	c.Pushes, c.Disconnected, c.Load = n.Pusher != nil, n.Gone, n.Load
	c.ManualTime = func() bool { return n.Hooks.LockTime != nil }
	c.MaxLocks, c.MaxSpanLocks, c.TotalSpanLocks = n.MaxLocks, n.MaxSpanLocks, n.TotalSpanLocks
	c.MaxWaiters, c.MaxWaiterBytes, c.PushDelay = n.MaxLockWaiters, n.MaxQueuedBytes, n.PushDelay
	c.Prepare()
}

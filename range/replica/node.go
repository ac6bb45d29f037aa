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
	// Clients are those that are connected to this node. Default: NoClients.
	Clients Clients
	// Siblings are what else is on this node. Default: NoSiblings.
	Siblings Siblings
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
	if n.Clients == nil {
		n.Clients = NoClients{}
	}
	if n.Siblings == nil {
		n.Siblings = NoSiblings{}
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
	c.Pushes, c.Disconnected, c.Load = n.Pusher != nil, n.Clients.Gone, n.Load
	c.ManualTime = func() bool { return n.Hooks.LockTime != nil }
	c.MaxLocks, c.MaxSpanLocks, c.TotalSpanLocks = n.MaxLocks, n.MaxSpanLocks, n.TotalSpanLocks
	c.MaxWaiters, c.MaxWaiterBytes, c.PushDelay = n.MaxLockWaiters, n.MaxQueuedBytes, n.PushDelay
	c.Prepare()
}

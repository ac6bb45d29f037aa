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

// Config is what New needs. Config itself is not kept.
type Config struct {
	// Partition is the descriptor of a new partition. One that is in the state already has
	// precedence.
	Partition *clusterpb.Partition
	// Empty: the replica was added to the partition, and a snapshot will fill it. Otherwise it is one
	// of those with which the partition was founded.
	Empty     bool
	ReplicaID keys.ReplicaID
	// State holds the partition among others. It must stay open until Close has returned.
	State *engine.State
	Group config.Group
	// Node is what the replicas of a node share.
	Node *Node
	// GCWindow is how long overwritten versions stay readable. Default 1 h. Negative: none.
	GCWindow time.Duration
	// CommitWait: every write has commit wait, also one that does not ask for it.
	CommitWait bool
	// DefaultTTL is how long a value lives whose write does not say so; 0: it does not expire.
	DefaultTTL time.Duration
}

// Node is what the replicas of one node share. It is made once, and not changed after the first
// New.
type Node struct {
	config.Node
	// Resolver, if not nil, ends the locks of committed transactions in other partitions. Without
	// it the records of transactions that have had locks are kept for ever.
	Resolver txn.Resolver
	// Random is for jitter. Default: the runtime's.
	Random func() uint64
	// Gone, if not nil, says that a client does not wait for the answers to its requests any more.
	// What waits for locks is given up then.
	Gone func(client uint64) bool
	// ClientAddress, if not nil, is where a client is connected from; "" if it is not connected
	// here.
	ClientAddress func(client uint64) string
	// Bear, if not nil, says what becomes of the child of a split on this node, of which the parent's
	// replica has the given id; an error fails the parent's replica. It is asked before the split is
	// applied, and Split is told when it is; leads: that replica leads. Both are called on apply
	// workers.
	Bear  func(child *clusterpb.Partition, self keys.ReplicaID) (reshape.Birth, error)
	Split func(child *clusterpb.Partition, self keys.ReplicaID, birth reshape.Birth, leads bool)
	// Right, if not nil, finds the replica here of a partition that is consumed by its left
	// neighbour, and whose log is committed at least up to an index. It is called on apply workers,
	// before the merge is applied; an error fails the left neighbour's replica.
	Right func(right *clusterpb.Partition, index uint64) (Right, error)
	// Taken, if not nil, is called when a snapshot of a partition has taken over what the replica of
	// another one had here, which by is the proof to have been merged. Nothing of that replica but
	// its log is there any more. Open, if not nil, finds such a replica, which is then closed to all;
	// nil if it is not open.
	Taken func(id keys.PartitionID, by *clusterpb.Partition)
	Open  func(id keys.PartitionID) *Replica
	// Froze, if not nil, is called when a partition was found, or has become, frozen. It must not
	// block.
	Froze  func(id keys.PartitionID, f *clusterpb.Freeze)
	recent *proposal.Budget
	reads  *tscache.Budget
	// Reads reads several partitions in one request.
	Reads read.Multi
	// vacant bounds what replicas remember of spans without values.
	vacant *vacant.Budget
	// Spans is which replica has which span of the state.
	Spans spans.Table
	// locking is of the concurrency managers of all partitions.
	locking concurrency.Config
	// counting has the counts of what splits off pause.
	counting *admission.Pacer
}

// Prepare fills in what is left out. It is called once, before the first New.
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

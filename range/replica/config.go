package replica

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/alarm"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/spans"
	"github.com/tidemarkdb/tidemark/range/replica/tscache"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Group is what a replica needs of its Raft group.
type Group interface {
	// Propose appends data to the log if this replica leads at term, in the order of the calls. It
	// does not wait. What it drops is told by LeadershipChanged: with another term or leader, or
	// once more with the same. data belongs to the group from here on. An error means that nothing
	// was or will be appended.
	Propose(term uint64, data []byte) error
	// ProposeChange is Propose for data that changes the replicas.
	ProposeChange(term uint64, data []byte, next group.Configuration) error
	// ReadIndex calls done(nil) when the local applied state has reached an index that was
	// committed when a quorum confirmed the leader, after the call; or done(error). It does not
	// wait, and done must not block.
	ReadIndex(done func(error))
	// Lease reports whether this replica leads at term and holds the leader lease at this moment.
	// It takes no lock.
	Lease() (term uint64, ok bool)
	// LeaseLeft is how much longer the lease stands, if it stands. No other replica leads before.
	// It takes no lock.
	LeaseLeft() time.Duration
	// Leader is the replica that leads, 0 if unknown, and at which term.
	Leader() (keys.ReplicaID, uint64)
	// Wake wakes the group if it sleeps.
	Wake()
	// TransferLeader gives up the lease and the leadership of a term, if this replica leads at it,
	// and asks another replica to lead. What was proposed before is in the log before.
	TransferLeader(term uint64, to keys.ReplicaID)
}

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
	Group Group
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
	Clock *hlc.Clock
	// ClockTrusted, if not nil, says whether leaders may go by Clock. One that was elected while it
	// was not believed serves clients when it is (Replica.ClockTrusted). It must be cheap.
	ClockTrusted func() bool
	// Metrics may be nil: nothing is counted.
	Metrics *Metrics
	// Logger may be nil: nothing is logged.
	Logger *slog.Logger
	// LogBehind, if not nil, says that too much waits for the raft log to add to it. It is asked
	// once for each evaluation.
	LogBehind func() bool
	// DiskFull, if not nil, says that there is no room for writes at present. It is asked once for
	// each evaluation.
	DiskFull func() bool
	// RoomShare is the smallest share of the reserve of which entries are proposed and stored while
	// DiskFull; NoShare, or nil: none are.
	RoomShare func() group.Share
	// PeerTakes, if not nil, says whether another node stores entries of a share.
	PeerTakes func(node keys.NodeID, share group.Share) bool
	// WithoutRoom, if not nil, says that another node's disk is below its reserve, so that its
	// followers store nothing; any says that this may be so of some node, and is cheap. Both must
	// be set, or neither.
	WithoutRoom    func(node keys.NodeID) bool
	AnyWithoutRoom func() bool
	// Silent, if not nil, says that a node that holds replicas of this node's partitions has not
	// been heard of for an election timeout.
	Silent func(node keys.NodeID) bool
	// Covering, if not nil, are the descriptors that the node knows of what has become of a
	// partition, itself included, and of a span of internal keys, nearest to that first. A refusal of
	// a request that was routed by an old table brings them. It must be cheap.
	Covering func(p *clusterpb.Partition, span keys.Span) []*clusterpb.Partition
	// Pusher, if not nil, asks the coordinators of transactions that are in the way. Without it
	// they are waited for only.
	Pusher txn.Pusher
	// Resolver, if not nil, ends the locks of committed transactions in other partitions. Without
	// it the records of transactions that have had locks are kept for ever.
	Resolver txn.Resolver
	// TransactionLimits, if not nil, are those of a keyspace, of which this node need not have a
	// partition. It must be cheap.
	TransactionLimits func(keys.KeyspaceID) txn.Limits
	// Random is for jitter. Default: the runtime's.
	Random func() uint64
	// Gone, if not nil, says that a client does not wait for the answers to its requests any more.
	// What waits for locks is given up then.
	Gone func(client uint64) bool
	// ClientAddress, if not nil, is where a client is connected from; "" if it is not connected
	// here.
	ClientAddress func(client uint64) string
	// AfterFunc calls a function when a time has passed, for what waits for clocks. Default:
	// time.AfterFunc.
	AfterFunc func(d time.Duration, f func()) alarm.Timer
	// Bear, if not nil, says what becomes of the child of a split on this node, of which the parent's
	// replica has the given id; an error fails the parent's replica. It is asked before the split is
	// applied, and Split is told when it is; leads: that replica leads. Both are called on apply
	// workers.
	Bear func(child *clusterpb.Partition, self keys.ReplicaID) (reshape.Birth, error)
	// Right, if not nil, finds the replica here of a partition that is consumed by its left
	// neighbour, and whose log is committed at least up to an index. It is called on apply workers,
	// before the merge is applied; an error fails the left neighbour's replica.
	Right func(right *clusterpb.Partition, index uint64) (Right, error)
	// Taken, if not nil, is called when a snapshot of a partition has taken over what the replica of
	// another one had here, which by is the proof to have been merged. Nothing of that replica but
	// its log is there any more. Stop, if not nil, finds such a replica, which is then closed to all;
	// nil if it is not open.
	Taken func(id keys.PartitionID, by *clusterpb.Partition)
	Open  func(id keys.PartitionID) *Replica
	// Froze, if not nil, is called when a partition was found, or has become, frozen. It must not
	// block.
	Froze func(id keys.PartitionID, f *clusterpb.Freeze)
	Split func(child *clusterpb.Partition, self keys.ReplicaID, birth reshape.Birth, leads bool)
	// Pool runs what must not hold up the caller of Submit, or the group's workers. Default: a Pool
	// of 4, 4,096.
	Pool *Pool
	// Long runs reads of many rows, apart from what others wait for. Default: a Pool of 4, 1,024;
	// what comes beyond that is refused.
	Long *Pool
	Limits
	recent     *proposal.Budget
	reads      *tscache.Budget
	multiscans multiscanQueue
	// waits are the clocks that commit wait waits for.
	waits commitwait.Clocks
	// vacant bounds what replicas remember of spans without values.
	vacant *vacant.Budget
	// Spans is which replica has which span of the state.
	Spans spans.Table
	// locking is of the concurrency managers of all partitions.
	locking concurrency.Config
	// load is what the foreground asks of this node.
	load *admission.Load
	// counting has the counts of what splits off pause.
	counting *admission.Pacer
	// hooks are for tests of what may happen in between; all may be nil.
	hooks struct {
		// evaluate runs before each write is evaluated.
		evaluate func()
		// read runs before an evaluation looks up what is at a key.
		read func()
		// committed runs when a batch can be read from the engine, and nothing else knows it yet.
		committed func()
		// lockTime is the time by which waiting for locks, and for what is closed, is measured; no
		// timer runs then.
		lockTime func() time.Time
		// tableBytes, if not 0, is about how large a table of a snapshot gets.
		tableBytes uint64
	}
}

// Limits bound what a replica holds and does at once. Zero fields take the defaults.
type Limits struct {
	// MaxInFlight is how many proposals of a partition are on their way at once. Default 2.
	MaxInFlight int
	// MaxEntryBytes is about how much one entry holds; a single larger write has an entry of its
	// own. Default 1 MiB.
	MaxEntryBytes int
	// MaxQueuedWrites and MaxQueuedBytes bound a partition's queue. Defaults 4,096 and 16 MiB; a
	// queue that is empty takes a write of any size.
	MaxQueuedWrites, MaxQueuedBytes int
	// MaxWaitingReads bounds the reads of a partition that wait for something in flight or for a
	// read index. Default 1,024.
	MaxWaitingReads int
	// TimestampCacheSlots bounds a partition's timestamp cache; rounded up to a power of two.
	// Default 32,768 (512 KiB). TotalReadBytes bounds the caches of all partitions of a node, in
	// bytes. Default 256 MiB.
	TimestampCacheSlots int
	TotalReadBytes      int64
	// RecentSlots bounds how many recently written keys a partition's leader remembers, to save
	// looking them up; rounded down to a power of two. Default 32,768 (768 KiB). TotalRecentBytes
	// bounds that for all partitions of a node, in bytes. Default 48 MiB.
	RecentSlots      int
	TotalRecentBytes int64
	// VacantRun is how many keys in a row without a value a scan walks over before it remembers that
	// they have none. Default 64. TotalVacantBytes bounds what is remembered for all partitions of a
	// node. Default 16 MiB.
	VacantRun, TotalVacantBytes int
	// MaxLocks is how many keys of a partition transactions may have locked. Default 200,000.
	MaxLocks int
	// MaxSpanLocks is how many spans of a partition transactions may hold, default 256,
	// TotalSpanLocks how many in all partitions that a node leads, default 16,384.
	MaxSpanLocks, TotalSpanLocks int
	// MaxLockWaiters bounds the writes of a partition that wait for locks, MaxQueuedBytes how large
	// they are together. Default 1,024.
	MaxLockWaiters int
	// PushDelay is for how long writes wait for a transaction's locks before its coordinator is
	// asked, and it may be aborted. Default: none; they ask at once.
	PushDelay time.Duration
	// LoadTableBytes is from which size on a block of records is committed as a table, and not as a
	// batch: it has to be worth a file. Default 256 KiB.
	LoadTableBytes int
	// StallTimeout is after how long without completion proposals are given up as lost: outcome
	// unknown. Default 10 s.
	StallTimeout time.Duration
}

// EnsureDefaults fills in zero fields.
func (l *Limits) EnsureDefaults() {
	setDefault(&l.MaxInFlight, 2)
	setDefault(&l.MaxEntryBytes, 1<<20)
	setDefault(&l.MaxQueuedWrites, 4096)
	setDefault(&l.MaxQueuedBytes, 16<<20)
	setDefault(&l.MaxWaitingReads, 1024)
	setDefault(&l.TimestampCacheSlots, tscache.DefaultSlots)
	setDefault(&l.RecentSlots, 32<<10)
	setDefault(&l.VacantRun, 64)
	setDefault(&l.TotalVacantBytes, 16<<20)
	if l.TotalReadBytes <= 0 {
		l.TotalReadBytes = 256 << 20
	}
	if l.TotalRecentBytes <= 0 {
		l.TotalRecentBytes = 48 << 20
	}
	setDefault(&l.MaxLocks, 200_000)
	setDefault(&l.MaxSpanLocks, 256)
	setDefault(&l.TotalSpanLocks, 16<<10)
	setDefault(&l.MaxLockWaiters, 1024)
	setDefault(&l.LoadTableBytes, 256<<10)
	if l.StallTimeout <= 0 {
		l.StallTimeout = 10 * time.Second
	}
}

// Prepare fills in what is left out. It is called once, before the first New.
func (n *Node) Prepare() error {
	if n.Clock == nil {
		return fmt.Errorf("replica: a node needs a clock")
	}
	if n.Logger == nil {
		n.Logger = slog.New(slog.DiscardHandler)
	}
	if n.Metrics == nil {
		n.Metrics = NewMetrics(nil)
	}
	if n.Random == nil {
		n.Random = rand.Uint64
	}
	if n.AfterFunc == nil {
		n.AfterFunc = alarm.Plain
	}
	if n.Pool == nil {
		n.Pool = NewPool(4, 4096)
	}
	if n.Long == nil {
		n.Long = NewPool(4, 1024)
	}
	n.EnsureDefaults()
	n.recent = proposal.NewBudget(int(n.TotalRecentBytes / proposal.RecentSlotBytes))
	n.reads = tscache.NewBudget(n.TotalReadBytes)
	n.vacant = vacant.NewBudget(int64(n.TotalVacantBytes))
	n.Metrics.vacant.Store(n.vacant)
	n.waits = commitwait.Clocks{Clock: n.Clock, AfterFunc: n.AfterFunc, Seconds: n.Metrics.commitWaits}
	n.multiscans.init(n)
	n.load = admission.NewLoad(time.Now())
	n.counting = admission.NewPacer(admission.Count, n.load)
	n.prepareLocking()
	return nil
}

// prepareLocking makes the concurrency managers' configuration.
func (n *Node) prepareLocking() {
	c := &n.locking
	c.Metrics, c.Logger, c.Random = n.Metrics.locking, n.Logger, n.Random
	c.Pushes, c.Disconnected, c.Load = n.Pusher != nil, n.Gone, n.load
	c.ManualTime = func() bool { return n.hooks.lockTime != nil }
	c.MaxLocks, c.MaxSpanLocks, c.TotalSpanLocks = n.MaxLocks, n.MaxSpanLocks, n.TotalSpanLocks
	c.MaxWaiters, c.MaxWaiterBytes, c.PushDelay = n.MaxLockWaiters, n.MaxQueuedBytes, n.PushDelay
	c.Prepare()
}

func setDefault(field *int, value int) {
	if *field <= 0 {
		*field = value
	}
}

// Pending is a request on its way through a replica. The replica owns the request until it has
// called Reply, exactly once, from any goroutine: it may not be changed, nor the memory that its
// keys and values lie in. Reply must not block, and the rows of a page are only good until it
// returns.
type Pending struct {
	// Client is the client's id: with the request's sequence it is the request id.
	Client  uint64
	Request *kvpb.Request
	Reply   func(*kvpb.Response)
	// Arrived is when the request came; its timeout counts from there.
	Arrived time.Time
}

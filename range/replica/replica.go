package replica

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/gc"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/snapshot"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/range/replica/tscache"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Replica is one node's copy of a partition. It implements group.StateMachine, and wires the rooms.
type Replica struct {
	node  *Node
	group config.Group
	state *engine.State
	id    keys.PartitionID
	self  keys.ReplicaID
	// appliedKey is the state key of the applied record.
	appliedKey []byte

	// applying is held while entries are applied. subsumed is set when a merge has given this
	// partition's span to another partition; no entry is applied after that.
	applying chanMutex
	subsumed atomic.Bool

	closer
	m         *machine.Machine
	eval      *eval.Evaluator
	reads     *read.Reader
	snapshots *snapshot.Receiver
	reshape   *reshape.Reshaper
	gc        *gc.Collector
}

var _ group.StateMachine = (*Replica)(nil)

// ErrNoBase is returned by New for a partition that has split off from another one, if the state
// lacks the data that the split gave it: the log of the other partition has to be applied before.
var ErrNoBase = errors.New("the state lacks what it had when it split off another partition")

// New opens a replica of a partition from the state database, or makes a new and empty one if the
// database has no descriptor. Node.Prepare must have been called.
func New(c Config) (*Replica, error) {
	if c.State == nil || c.Group == nil || c.Node == nil || c.ReplicaID == 0 || c.Partition == nil {
		return nil, errors.New("replica: State, Group, Node, Partition and ReplicaID must be set")
	}
	if err := keys.ValidatePartition(c.Partition); err != nil {
		return nil, err
	}
	r := &Replica{
		node:  c.Node,
		group: c.Group,
		state: c.State,
		id:    keys.PartitionID(c.Partition.Id),
		self:  c.ReplicaID,

		applying:   newChanMutex(),
		appliedKey: keys.LocalKey(keys.PartitionID(c.Partition.Id), keys.SuffixApplied),
	}
	r.m = machine.New(&c.Node.Node, c.Group, c.State, r.id, r.self)
	if c.GCWindow == 0 {
		c.GCWindow = time.Hour
	}
	r.reshape = reshape.New(reshaped{r}, c.State, c.Node.counting)
	r.gc = gc.New(gc.Config{Replica: collected{r}, State: c.State, Clock: c.Node.Clock,
		Metrics: c.Node.Metrics.GC, Resolver: c.Node.Resolver, DiskFull: c.Node.DiskFull,
		Window: c.GCWindow})
	r.snapshots = snapshot.NewReceiver(r, c.State, &c.Node.Spans, c.Node.DiskFull,
		c.Node.Hooks.TableBytes)
	r.eval = eval.New(r.m, r.gc, proposal.NewRecent(c.Node.RecentSlots, c.Node.recent))
	r.reads = read.New(r.m, r.eval)
	r.closer = closer{r.m, r.eval}
	r.eval.SetCommitWait(c.CommitWait)
	r.eval.SetDefaultTTL(c.DefaultTTL)
	r.m.Mu.Locks.Init(&c.Node.locking, r.eval, r.id, c.Partition.GetKeyspace())
	r.m.Mu.Cache = tscache.New(c.Node.TimestampCacheSlots, c.Node.reads)
	r.m.Vacant.Init(c.Node.vacant, c.Node.VacantRun)
	applied, ok, err := storage.ReadApplied(c.State, r.id)
	if err != nil {
		return nil, err
	}
	descriptor, err := r.firstDescriptor(c, ok)
	if err != nil {
		return nil, err
	}
	if err := r.reload(applied, descriptor); err != nil {
		return nil, err
	}
	return r, nil
}

// firstDescriptor returns the descriptor with which the replica begins: the descriptor in the state
// database, or that with which the partition is founded, which is stored. For a replica that a
// snapshot is to fill nothing is stored: a key in a memtable would make the installation wait for a
// flush.
func (r *Replica) firstDescriptor(c Config, applied bool) (*clusterpb.Partition, error) {
	if !applied && c.Empty {
		return storage.Empty(c.Partition), nil
	}
	if !applied && c.Partition.SplitFrom != 0 {
		return nil, fmt.Errorf("partition %s: %w", r.id, ErrNoBase)
	}
	if !applied {
		if err := storage.WriteDescriptor(c.State, c.Partition); err != nil {
			return nil, err
		}
	}
	return storage.ReadDescriptor(c.State, r.id)
}

// reload takes what the state database holds.
func (r *Replica) reload(applied storage.Record, descriptor *clusterpb.Partition) error {
	found, err := readAnchored(r.state, descriptor)
	if err != nil {
		return fmt.Errorf("partition %s: reading its locks: %w", r.id, err)
	}
	r.m.RaiseThreshold(applied.Threshold)
	r.m.Publish(descriptor, applied.Index, 0)
	if !storage.IsEmpty(descriptor) {
		r.node.Spans.Own(descriptor)
	}
	if descriptor.GetFrozen() != nil {
		r.node.Siblings.Froze(r.id, descriptor.Frozen)
	}
	r.observe(applied.Highest)
	r.m.Mu.Lock()
	r.m.Mu.Applied = applied
	r.m.Mu.Locks.Reset(found.locks)
	r.m.Mu.Unlock()
	r.gc.RecordsFound(found.records)
	return nil
}

// observe brings the clock above a timestamp that is in the state: a client that asks this node for
// its clock, and then reads at that time, must see what it has acknowledged. The clock refuses only
// timestamps that a wrong clock has given.
func (r *Replica) observe(ts hlc.Timestamp) {
	if ts.IsZero() {
		return
	}
	if err := r.node.Clock.Update(ts); err != nil {
		r.node.Logger.Debug("the state is ahead of this server's clock", "partition", r.id,
			"error", err)
	}
}

// Descriptor returns the partition's descriptor. It must not be changed.
func (r *Replica) Descriptor() *clusterpb.Partition { return r.m.Descriptor() }

// ID returns the partition's id.
func (r *Replica) ID() keys.PartitionID { return r.id }

// ReplicaID returns this replica's id within the partition.
func (r *Replica) ReplicaID() keys.ReplicaID { return r.self }

// Stats returns the size of the partition, as of the applied index.
func (r *Replica) Stats() storage.Stats {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.Mu.Applied.Stats
}

// Leadership returns what the group reported last.
func (r *Replica) Leadership() group.Leadership {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.Mu.Leadership.Leadership
}

// Serving reports whether this replica leads and would evaluate writes.
func (r *Replica) Serving() bool {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.Mu.Leadership.Serving()
}

// Applied returns the index and term of the last applied entry.
func (r *Replica) Applied() (index, term uint64) {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.Mu.Applied.Index, r.m.Mu.Applied.Term
}

// DurableApplied returns the applied index that a crash now would leave.
func (r *Replica) DurableApplied() (uint64, error) {
	value, found, err := r.state.DurableGet(keys.LocalKey(r.id, keys.SuffixApplied))
	if err != nil || !found {
		return 0, err
	}
	a, err := storage.DecodeApplied(value)
	if err != nil {
		return 0, fmt.Errorf("partition %s: %w", r.id, err)
	}
	return a.Index, nil
}

// Close ends the replica: every request is answered, and nothing touches the state database after
// Close returns. The group must have been stopped before: it must make no more calls, and must have
// completed all that it was given. Close may be called again.
func (r *Replica) Close() error {
	if !r.m.BeginClose() {
		return nil
	}
	r.m.Mu.Lock()
	var end eval.Ending
	r.eval.GiveUpLocked(&end, eval.OutcomeUnknown)
	r.eval.RefuseQueueLocked(&end)
	r.m.Mu.Leadership.Close()
	end.Waiters = append(end.Waiters, r.reads.CloseLocked()...)
	r.m.Mu.Closing.Awake()
	r.m.Mu.Locks.Close()
	r.m.Mu.Unlock()
	r.eval.Finish(&end)
	r.m.HeldAnswers.Close()
	r.reads.Close()
	r.m.Drain()
	r.m.Vacant.Reset()
	return nil
}

// Gone closes the replica, and returns what has to be removed from this node.
func (r *Replica) Gone() (storage.Gone, error) {
	g := storage.Gone{ID: r.id}
	if d := r.Descriptor(); !storage.IsEmpty(d) && !r.subsumed.Load() {
		span := keys.PartitionSpan(d)
		g.Span = &span
	}
	return g, r.Close()
}

// StateSpans returns the spans of state keys that the partition has here; it is empty if the
// partition has no data.
func (r *Replica) StateSpans() []keys.Span {
	d := r.Descriptor()
	if storage.IsEmpty(d) || r.subsumed.Load() {
		return nil
	}
	spans := storage.Spans(r.id, keys.PartitionSpan(d))
	return spans[:]
}

// Checksum returns the checksum of the partition's present state (storage.Checksum).
func (r *Replica) Checksum() (index, sum uint64, err error) {
	if !r.m.Enter() {
		return 0, 0, machine.ErrClosed
	}
	defer r.m.Exit()
	return storage.Checksum(r.state, r.id)
}

// chanMutex is a lock that may be held while its holder sleeps or waits for messages. Goroutines
// wait for it on a channel, which virtual time (testing/synctest) takes into account.
type chanMutex chan struct{}

func newChanMutex() chanMutex { return make(chanMutex, 1) }

func (t chanMutex) lock() { t <- struct{}{} }

func (t chanMutex) unlock() { <-t }

// Work returns what the replica has done.
func (r *Replica) Work() machine.Work { return r.m.Work.Sum() }

// Locked reports whether transactions have locked keys or spans of the partition. It is cheap.
func (r *Replica) Locked() bool { return r.m.Mu.Locks.Held() != 0 }

// Intents counts the keys that are locked by transactions that write them, in the state that is
// applied here; entries on their way do not count.
func (r *Replica) Intents() int {
	if !r.Locked() {
		return 0
	}
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.Mu.Locks.Intents()
}

package replica

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/tscache"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Replica is one node's copy of a partition. It implements group.StateMachine.
type Replica struct {
	node  *Node
	group Group
	state *engine.State
	id    keys.PartitionID
	self  keys.ReplicaID
	// appliedKey is the state key of the applied record.
	appliedKey []byte

	// What descriptor points to is never changed.
	descriptor atomic.Pointer[clusterpb.Partition]
	// threshold is the garbage collection threshold: nothing below it can be read. Never nil.
	threshold atomic.Pointer[hlc.Timestamp]
	// gcWindow is a time.Duration; negative means that nothing is collected.
	gcWindow atomic.Int64
	// commitWait: every write has commit wait.
	commitWait atomic.Bool

	// active counts what Close waits for: calls of Submit, and reads that are not answered.
	active  atomic.Int64
	closed  atomic.Bool
	drained atomic.Pointer[chan struct{}]

	mu struct {
		sync.Mutex
		// applied is written by Apply and Install only.
		applied    appliedRecord
		leadership group.Leadership
		// reign changes whenever what was in flight is given up. An evaluation that began in another one has no effect.
		reign uint64
		// serving: this replica leads, and everything that earlier leaders, or earlier reigns, left in the log is applied.
		serving bool
		// firstTerm is the term of the log's first entry, 0 if this process has not seen it applied.
		firstTerm uint64
		// ledTerm is the latest term in which this replica led.
		ledTerm    uint64
		handedOver handedOver
		// hearsSince is since when transactions' heartbeats have been heard, by the same clock; 0:
		// they always have, by this leader or one that handed over to it.
		// After an election it is earlier than that, by what a leader gives less than all the time that a client may be silent (electedTime).
		hearsSince int64
		// barrier is the sequence of the proposal that ends the wait for what an earlier reign of the same term left in the log;
		// 0: there is nothing to wait for. It is to be proposed if barrierDue is set.
		barrier    uint64
		barrierDue bool
		// successor is the replica to hand over to once the barrier is proposed; 0: none.
		successor keys.ReplicaID
		// handingOver: it serves nothing more as a leader of this term, which the group gives up in any case.
		handingOver bool
		// low is below every timestamp that this leadership gave, and at or above every one that an earlier one gave or
		// served: what is read at or below it may have been written by another node.
		low hlc.Timestamp
		// failed is why nothing is applied any more.
		failed error

		queue proposal.Queue[write]
		// evaluating: a goroutine is in evaluateQueue.
		evaluating bool
		// building is the proposal that the evaluation at work fills.
		building *pendingEntry
		// open is the evaluation that fills it, if it stays open and nobody is at work.
		open *evaluation
		// inFlight is what is proposed and not applied, oldest first.
		inFlight []*pendingEntry
		// sequence is the number of the latest proposal.
		sequence uint64
		// pending are the writes that are evaluated and not applied.
		pending proposal.Pending
		// written is at or above every version that was put there.
		written hlc.Timestamp
		recent  proposal.Recent
		cache   tscache.Cache

		// locks are the locks of transactions, and what waits for them.
		locks concurrency.Manager
		// held is what is held back by commit wait.
		held commitWaits
		// records are the transaction records in flight.
		records map[txn.ID]flightRecord
		// mayHaveRecords: there may be transaction records for garbage collection to look at.
		mayHaveRecords bool
		// recordsSet counts the batches of entries that have set transaction records.
		recordsSet uint64
		// foreign is at or above every version that a transaction's commit put above the timestamp at which it was prepared here: what
		// is at or below may have been acknowledged before this node's clock had come to it.
		foreign hlc.Timestamp

		// waitingReads counts reads that wait for a proposal or a read index.
		waitingReads int
		// confirming: a read index is asked for. next are the reads that came after that, and need another one.
		confirming bool
		next       []*read
		// collecting: CollectGarbage is at work.
		collecting bool
	}
}

var _ group.StateMachine = (*Replica)(nil)

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the replica is closed")

// New opens a replica: what the state database says of the partition, or if it says nothing, a new and empty partition.
// Node.Prepare must have been called.
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

		appliedKey: keys.LocalKey(keys.PartitionID(c.Partition.Id), keys.SuffixApplied),
	}
	if c.GCWindow == 0 {
		c.GCWindow = time.Hour
	}
	r.gcWindow.Store(int64(c.GCWindow))
	r.commitWait.Store(c.CommitWait)
	r.mu.locks.Init(&c.Node.locking, r, r.id, c.Partition.GetKeyspace())
	r.mu.cache = tscache.New(c.Node.TimestampCacheSlots)
	r.mu.queue = proposal.NewQueue(&writeBuffers)
	r.mu.recent = proposal.NewRecent(c.Node.RecentSlots, c.Node.recent)
	applied, ok, err := readApplied(c.State, r.id)
	if err != nil {
		return nil, err
	}
	if !ok {
		if err := writeDescriptor(c.State, c.Partition); err != nil {
			return nil, err
		}
	}
	descriptor, err := readDescriptor(c.State, r.id)
	if err != nil {
		return nil, err
	}
	if err := r.reload(applied, descriptor); err != nil {
		return nil, err
	}
	return r, nil
}

// reload takes what the state database says.
func (r *Replica) reload(applied appliedRecord, descriptor *clusterpb.Partition) error {
	found, err := readAnchored(r.state, descriptor)
	if err != nil {
		return fmt.Errorf("partition %s: reading its locks: %w", r.id, err)
	}
	threshold := applied.threshold
	r.threshold.Store(&threshold)
	r.descriptor.Store(descriptor)
	r.observe(applied.highest)
	r.mu.Lock()
	r.mu.applied = applied
	r.mu.locks.Reset(found.locks)
	r.mu.mayHaveRecords = found.records
	r.mu.Unlock()
	return nil
}

// observe brings the clock above a timestamp that is in the state: whoever asks this node for its clock, and then reads at that, is
// to see what it has acknowledged. The clock refuses only what a wrong one has given.
func (r *Replica) observe(ts hlc.Timestamp) {
	if ts.IsZero() {
		return
	}
	if err := r.node.Clock.Update(ts); err != nil {
		r.node.Logger.Debug("the state is ahead of this server's clock", "partition", r.id, "error", err)
	}
}

func readDescriptor(r engine.Reader, id keys.PartitionID) (*clusterpb.Partition, error) {
	value, closer, err := r.Get(keys.LocalKey(id, keys.SuffixDescriptor))
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = fmt.Errorf("%w: there is none", errRecord)
		}
		return nil, fmt.Errorf("partition %s: reading the descriptor: %w", id, err)
	}
	defer closer.Close()
	return decodeDescriptor(id, value)
}

func decodeDescriptor(id keys.PartitionID, value []byte) (*clusterpb.Partition, error) {
	p := &clusterpb.Partition{}
	if err := p.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("partition %s: decoding the descriptor: %w: %w", id, errRecord, err)
	}
	if err := keys.ValidatePartition(p); err != nil {
		return nil, err
	}
	if keys.PartitionID(p.Id) != id {
		return nil, fmt.Errorf("partition %s: its descriptor says it is %s", id, keys.PartitionID(p.Id))
	}
	return p, nil
}

// writeDescriptor makes a new partition: its descriptor, and nothing applied.
func writeDescriptor(state *engine.State, p *clusterpb.Partition) error {
	id := keys.PartitionID(p.Id)
	value, err := p.MarshalVT()
	if err != nil {
		return fmt.Errorf("partition %s: encoding the descriptor: %w", id, err)
	}
	b := state.NewBatch()
	defer b.Close()
	if err := b.Set(keys.LocalKey(id, keys.SuffixDescriptor), value, nil); err != nil {
		return err
	}
	if err := b.Set(keys.LocalKey(id, keys.SuffixApplied), (&appliedRecord{}).append(nil), nil); err != nil {
		return err
	}
	return state.Commit(b)
}

// Descriptor is the partition's descriptor. It must not be changed.
func (r *Replica) Descriptor() *clusterpb.Partition { return r.descriptor.Load() }

// ID is the partition's id.
func (r *Replica) ID() keys.PartitionID { return r.id }

// ReplicaID is this replica's id within the partition.
func (r *Replica) ReplicaID() keys.ReplicaID { return r.self }

// Stats is what the partition holds, as of the applied index.
func (r *Replica) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.applied.stats
}

// Leadership is what the group said last.
func (r *Replica) Leadership() group.Leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leadership
}

// Serving reports whether this replica leads and would evaluate writes.
func (r *Replica) Serving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.serving
}

// Applied returns the index and term of the last applied entry.
func (r *Replica) Applied() (index, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.applied.index, r.mu.applied.term
}

// DurableApplied is the applied index that would be left after a crash now.
func (r *Replica) DurableApplied() (uint64, error) {
	value, found, err := r.state.DurableGet(keys.LocalKey(r.id, keys.SuffixApplied))
	if err != nil || !found {
		return 0, err
	}
	a, err := decodeApplied(value)
	if err != nil {
		return 0, fmt.Errorf("partition %s: %w", r.id, err)
	}
	return a.index, nil
}

// enter announces a user, until exit. It returns false when the replica is closed.
func (r *Replica) enter() bool {
	r.active.Add(1)
	if r.closed.Load() {
		r.exit()
		return false
	}
	return true
}

func (r *Replica) exit() {
	if r.active.Add(-1) == 0 && r.closed.Load() {
		if drained := r.drained.Load(); drained != nil {
			select {
			case *drained <- struct{}{}:
			default:
			}
		}
	}
}

// Close ends the replica: everything is answered, and nothing touches the state database after it returns. The group is stopped
// before it: it must call no more, and must have called what it was given. Close may be called again.
func (r *Replica) Close() error {
	drained := make(chan struct{}, 1)
	if !r.drained.CompareAndSwap(nil, &drained) {
		return nil
	}
	r.closed.Store(true)
	r.mu.Lock()
	var end ending
	r.giveUpLocked(&end, outcomeUnknown)
	r.refuseQueueLocked(&end)
	r.mu.serving, r.mu.barrier, r.mu.barrierDue = false, 0, false
	r.endHeldLocked(&end)
	r.mu.locks.Close()
	confirming := r.mu.next
	r.mu.next = nil
	r.mu.waitingReads -= len(confirming)
	r.mu.Unlock()
	r.finish(&end)
	for _, rd := range confirming {
		r.refuseRead(rd)
	}
	for r.active.Load() > 0 {
		<-drained
	}
	return nil
}

package replica

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Right is the replica of a partition that is consumed on this node, as its node has it.
type Right interface {
	// Replica is that replica.
	Replica() *Replica
	// Entries calls do for pieces of its log behind after, up to last, which is committed.
	Entries(after, last uint64, do func([]group.Entry) error) error
	// Consumed says that its partition is a part of another one in the state from now on. Nothing of
	// the replica but its log is there any more. It must not block.
	Consumed(by *clusterpb.Partition)
}

// merge is an entry by which the partition consumes its right neighbour, and what is found here of
// the neighbour.
type merge struct {
	*reshape.Merge
	from Right
	// anchored is what lies with the neighbour's keys.
	anchored anchored
}

// errConsumed is for a replica whose partition was merged into its left neighbour on this node.
var errConsumed = errors.New("its left neighbour has consumed it")

// stageConsumption adds the effects of a merge to a batch, after the neighbour's replica here has
// come to its freeze, which nothing may be applied to any more until release is called.
//
// INVARIANT: the neighbour is at its freeze. Its leader is gone, perhaps, and no replica is left to
// tell this replica of it what is committed; the entry says so.
func (r *Replica) stageConsumption(batch *engine.StateBatch, applied *storage.Record,
	m *merge) (release func(), err error) {
	id := keys.PartitionID(m.Right.Id)
	if r.node.Right == nil {
		return nil, fmt.Errorf("merging it with partition %s: the node has no replicas to merge", id)
	}
	if m.from, err = r.node.Right(m.Right, m.Record.Index); err != nil {
		return nil, fmt.Errorf("merging it with partition %s: %w", id, err)
	}
	q := m.from.Replica()
	q.applying.lock()
	defer func() {
		if err != nil {
			q.applying.unlock()
		}
	}()
	if err := q.bringTo(m.Right, m.Record.Index, m.from); err != nil {
		return nil, fmt.Errorf("merging it with partition %s: bringing that to its freeze: %w", id, err)
	}
	left, err := proto.Marshal(m.Left)
	if err != nil {
		return nil, err
	}
	if err := batch.Set(keys.LocalKey(r.id, keys.SuffixDescriptor), left, nil); err != nil {
		return nil, err
	}
	if err := storage.DeleteLocal(batch, id); err != nil {
		return nil, err
	}
	// INVARIANT: what the neighbour has promised goes on.
	applied.Closed = hlc.Max(applied.Closed, m.Record.Closed)
	applied.Threshold = hlc.Max(applied.Threshold, m.Record.Threshold)
	applied.Highest = hlc.Max(applied.Highest, m.Record.Highest)
	if m.anchored, err = readAnchored(r.state, m.Right); err != nil {
		return nil, err
	}
	return q.applying.unlock, nil
}

// FrozenState implements reshape.Frozen: it is what a frozen partition leaves behind: its
// descriptor, and what it has applied, at the index of the freeze.
func (r *Replica) FrozenState() (*clusterpb.Partition, storage.Record, error) {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	d, record := r.Descriptor(), r.m.Mu.Applied
	switch {
	case r.m.Mu.Failed != nil:
		return nil, record, r.m.Mu.Failed
	case r.consumed.Load():
		return nil, record, errConsumed
	case d.GetFrozen() == nil:
		return nil, record, fmt.Errorf("partition %s is not frozen", r.id)
	}
	record.Index = r.m.DescribedAt()
	return d, record, nil
}

// FrozenAt is an index of the log at or behind the entry by which the partition was frozen; false
// if it is not frozen, as far as is applied here.
func (r *Replica) FrozenAt() (index uint64, frozen bool) {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.DescribedAt(), r.Descriptor().GetFrozen() != nil
}

// bringTo applies what a replica lacks of its log up to an index. applying is locked.
func (r *Replica) bringTo(frozen *clusterpb.Partition, index uint64, from Right) error {
	if r.consumed.Load() {
		return errConsumed
	}
	if at, _ := r.Applied(); at < index {
		err := from.Entries(at, index, func(entries []group.Entry) error {
			return r.applyAll(entries)
		})
		if err != nil {
			return err
		}
	}
	at, _ := r.Applied()
	if d := r.Descriptor(); at < index || !proto.Equal(d, frozen) {
		return fmt.Errorf("it has applied its log up to %d, and epoch (%d, %d); what is to be merged "+
			"is at %d, and epoch (%d, %d)", at, d.GetGeneration(), d.GetMembership(), index,
			frozen.Generation, frozen.Membership)
	}
	return nil
}

// takeOver makes the neighbour's part this partition's, after the state has it.
func (r *Replica) takeOver(m *merge) {
	r.node.Spans.Merge(m.Left, m.Right)
	r.node.Logger.Info("a partition has consumed its right neighbour", "partition", r.id, "replica",
		r.self, "neighbour", m.Right.Id, "generation", m.Left.Generation)
}

// widenLocked takes over what the neighbour's leaders have promised, and its locks.
func (r *Replica) widenLocked(m *merge) {
	r.eval.RequeueLocked(r.m.Mu.Locks.Apply(m.anchored.locks))
	if m.anchored.records {
		r.gc.RecordsSet()
	}
	if l := &r.m.Mu.Leadership; l.Widen(r.node.Clock.Physical(), m.Record.Highest) {
		r.m.Mu.Cache.Raise(hlc.Max(l.Low(), m.Record.Closed))
	}
}

// endConsumed answers all that waits for a partition that is a part of another one: it is to be
// asked of that.
func (r *Replica) endConsumed(by *clusterpb.Partition) {
	end := eval.Ending{Stale: by}
	r.m.Mu.Lock()
	r.m.Consumed(by)
	r.eval.GiveUpLocked(&end, eval.NotRun)
	r.eval.RefuseQueueLocked(&end)
	r.m.Mu.Leadership.Close()
	r.m.Mu.Closing.Awake()
	r.m.Mu.Cache.Reset(hlc.Timestamp{})
	r.m.Mu.Unlock()
	r.eval.Finish(&end)
}

// ConsumedBy is the partition that has consumed this one on this node; nil if none has.
func (r *Replica) ConsumedBy() *clusterpb.Partition { return r.m.ConsumedBy() }

// stop has nothing applied here any more, and no freeze ended: another partition takes the
// replica's span over. It waits for what is being applied.
func (r *Replica) stop() {
	r.applying.lock()
	r.consumed.Store(true)
	r.applying.unlock()
	r.m.Announce(^uint64(0))
}

// AnswerHeld waits until what is held back for the clocks is answered, but not for long: see
// package commitwait. It is for a replica that was consumed, before it is closed.
func (r *Replica) AnswerHeld() {
	for deadline := time.Now().Add(mostHeld); time.Now().Before(deadline); time.Sleep(heldCheck) {
		if r.m.HeldAnswers.Len()+r.reads.Held() == 0 {
			return
		}
	}
}

// mostHeld is for how long AnswerHeld waits, which is longer than clocks are apart, and heldCheck
// how often it looks.
const mostHeld, heldCheck = 2 * time.Second, 5 * time.Millisecond

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

// Right is a replica on this node whose partition is being consumed by its left neighbour.
type Right interface {
	// Replica returns the replica itself.
	Replica() *Replica
	// Entries calls do with pieces of the replica's log: the entries above after, up to last. last
	// is committed.
	Entries(after, last uint64, do func([]group.Entry) error) error
	// Subsumed reports that the state has the partition as a part of another one from now on. Only
	// the log of the replica is left. It must not block.
	Subsumed(by *clusterpb.Partition)
}

// merge is an entry by which the partition consumes its right neighbour, together with what this
// node has of the neighbour.
type merge struct {
	*reshape.Merge
	from Right
	// anchored holds the locks and records that lie with the neighbour's keys.
	anchored anchored
}

// errSubsumed is for a replica whose partition was merged into its left neighbour on this node.
var errSubsumed = errors.New("its left neighbour has consumed it")

// stageMerge adds the effects of a merge to a batch. The neighbour's replica on this node has
// been brought to its freeze before, and applies nothing until release is called.
//
// INVARIANT: the neighbour is at its freeze. Its leader, and all other replicas that could tell
// what is committed, may be gone; the entry of the merge says at which index the freeze is.
func (r *Replica) stageMerge(batch *engine.StateBatch, applied *storage.Record,
	m *merge) (release func(), err error) {
	id := keys.PartitionID(m.Right.Id)
	if m.from, err = r.node.Siblings.Right(m.Right, m.Record.Index); err != nil {
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
	// INVARIANT: what the neighbour has closed stays closed.
	applied.Closed = hlc.Max(applied.Closed, m.Record.Closed)
	applied.Threshold = hlc.Max(applied.Threshold, m.Record.Threshold)
	applied.Highest = hlc.Max(applied.Highest, m.Record.Highest)
	if m.anchored, err = readAnchored(r.state, m.Right); err != nil {
		return nil, err
	}
	return q.applying.unlock, nil
}

// FrozenState implements reshape.Frozen. It returns what a frozen partition leaves behind: its
// descriptor, and its applied record at the index of the freeze.
func (r *Replica) FrozenState() (*clusterpb.Partition, storage.Record, error) {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	d, record := r.Descriptor(), r.m.Mu.Applied
	switch {
	case r.m.Mu.Failed != nil:
		return nil, record, r.m.Mu.Failed
	case r.subsumed.Load():
		return nil, record, errSubsumed
	case d.GetFrozen() == nil:
		return nil, record, fmt.Errorf("partition %s is not frozen", r.id)
	}
	record.Index = r.m.DescribedAt()
	return d, record, nil
}

// FrozenAt returns an index of the log at or after the entry by which the partition was frozen;
// false if this replica has applied no freeze.
func (r *Replica) FrozenAt() (index uint64, frozen bool) {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.DescribedAt(), r.Descriptor().GetFrozen() != nil
}

// bringTo applies the log of a replica up to an index. The caller holds that replica's applying.
func (r *Replica) bringTo(frozen *clusterpb.Partition, index uint64, from Right) error {
	if r.subsumed.Load() {
		return errSubsumed
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

// takeOver makes the neighbour's span a part of this partition, after the state has been changed.
func (r *Replica) takeOver(m *merge) {
	r.node.Spans.Merge(m.Left, m.Right)
	r.node.Logger.Info("a partition has consumed its right neighbour", "partition", r.id, "replica",
		r.self, "neighbour", m.Right.Id, "generation", m.Left.Generation)
}

// widenLocked takes over the promises of the neighbour's leaders, and its locks.
func (r *Replica) widenLocked(m *merge) {
	r.eval.RequeueLocked(r.m.Mu.Locks.Apply(m.anchored.locks))
	if m.anchored.records {
		r.gc.RecordsSet()
	}
	if l := &r.m.Mu.Leadership; l.Widen(r.node.Clock.Physical(), m.Record.Highest) {
		r.m.Mu.Cache.Raise(hlc.Max(l.Low(), m.Record.Closed))
	}
}

// endSubsumed answers all requests that wait here, for a partition that is a part of another one
// now: clients have to ask that partition.
func (r *Replica) endSubsumed(by *clusterpb.Partition) {
	end := eval.Ending{Stale: by}
	r.m.Mu.Lock()
	r.m.Subsumed(by)
	r.eval.GiveUpLocked(&end, eval.NotRun)
	r.eval.RefuseQueueLocked(&end)
	r.m.Mu.Leadership.Close()
	r.m.Mu.Closing.Awake()
	r.m.Mu.Cache.Reset(hlc.Timestamp{})
	r.m.Mu.Unlock()
	r.eval.Finish(&end)
}

// SubsumedBy returns the partition that has consumed this one on this node; nil if there is none.
func (r *Replica) SubsumedBy() *clusterpb.Partition { return r.m.SubsumedBy() }

// stop ends the apply of this replica, and keeps it frozen: another partition takes its span over.
// It waits for the entries that are being applied.
func (r *Replica) stop() {
	r.applying.lock()
	r.subsumed.Store(true)
	r.applying.unlock()
	r.m.Announce(^uint64(0))
}

// AnswerHeld waits a short time until commit wait has sent its answers (package commitwait). It is
// called for a replica that was consumed, before the replica is closed.
func (r *Replica) AnswerHeld() {
	for deadline := time.Now().Add(mostHeld); time.Now().Before(deadline); time.Sleep(heldCheck) {
		if r.m.HeldAnswers.Len()+r.reads.Held() == 0 {
			return
		}
	}
}

// mostHeld bounds the time that AnswerHeld waits, and is longer than clocks may differ. heldCheck
// is the interval at which it looks.
const mostHeld, heldCheck = 2 * time.Second, 5 * time.Millisecond

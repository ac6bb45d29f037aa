package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition consumes its right neighbour on every node by itself, when it applies the entry that
// says so (range/replica/reshape, merge.go). Three things are left to the node.
//
// The leader of both carries out the core's order: freeze the right one, see that all its replicas
// have that in their logs, merge.
//
// A freeze ends. When the left neighbour has not consumed the frozen one in time, its leader takes
// the attempt back, by raising its own epoch; and the frozen one's leader ends the freeze when the
// left neighbour on its node has a later epoch than the freeze names, and has not consumed it.
// Neither waits for the other, nor for the core.
//
// The replica that was consumed is closed, and its log goes when what has consumed it is durable:
// until then a crash may take that back, and it is consumed again.

const (
	// freezeCheck is how often frozen partitions are looked at, and followers while one is frozen.
	freezeCheck, matchCheck = 50 * time.Millisecond, 2 * time.Millisecond
	// mergeTimeout is for how long a partition is frozen before the attempt to merge it is taken
	// back.
	mergeTimeout = 5 * time.Second
)

// merging is what a node does about merges.
type merging struct {
	node      *Node
	wakeWatch task.Signal
	mu        struct {
		sync.Mutex
		// frozen are the freezes of partitions here.
		frozen map[keys.PartitionID]frozenSince
		// thawing are those whose freeze a goroutine ends.
		thawing map[*hosted.Replica]struct{}
	}
}

// frozenSince is a freeze, and since when it is known; of Node.now.
type frozenSince struct {
	freeze *clusterpb.Freeze
	at     int64
}

func (m *merging) init(n *Node) {
	m.node, m.wakeWatch = n, task.NewSignal()
	m.mu.frozen = make(map[keys.PartitionID]frozenSince)
	m.mu.thawing = make(map[*hosted.Replica]struct{})
}

// froze has a freeze looked at until it is over; see replica.Node.Froze.
func (m *merging) froze(id keys.PartitionID, f *clusterpb.Freeze) {
	m.mu.Lock()
	if known, found := m.mu.frozen[id]; !found || !proto.Equal(known.freeze, f) {
		m.mu.frozen[id] = frozenSince{f, m.node.base.Now()}
	}
	m.mu.Unlock()
	m.wakeWatch.Send()
}

// watch looks at frozen partitions.
func (m *merging) watch(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wakeWatch:
		}
		for m.lookAtFrozen(ctx, &working) {
			if task.Pause(ctx, freezeCheck) != nil {
				return
			}
		}
	}
}

// lookAtFrozen says whether there are any.
func (m *merging) lookAtFrozen(ctx context.Context, working *sync.WaitGroup) bool {
	n := m.node
	m.mu.Lock()
	all := maps.Clone(m.mu.frozen)
	m.mu.Unlock()
	for id, f := range all {
		late := n.base.Now()-f.at > int64(mergeTimeout)
		h := n.replicas.Get(id)
		if h == nil {
			// It may be opening.
			if late {
				m.melted(id, f)
			}
			continue
		}
		if !proto.Equal(h.Replica.Descriptor().GetFrozen(), f.freeze) || h.Removed.Load() ||
			h.Replica.ConsumedBy() != nil {
			m.melted(id, f)
			continue
		}
		do := m.due(h, f.freeze, late)
		if do == nil || !m.beginThaw(h) {
			continue
		}
		working.Go(func() {
			defer m.endThaw(h)
			limited, cancel := context.WithTimeout(ctx, mergeTimeout)
			defer cancel()
			if err := do(limited); err != nil && ctx.Err() == nil {
				n.log.Warn("the freeze of a partition cannot be ended yet", "partition", id, "error", err)
				_ = task.Pause(ctx, orderAgain)
			}
		})
	}
	return len(all) > 0
}

// beginThaw says that a goroutine is to end a partition's freeze; false if another one does.
func (m *merging) beginThaw(h *hosted.Replica) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, other := m.mu.thawing[h]; other {
		return false
	}
	m.mu.thawing[h] = struct{}{}
	return true
}

func (m *merging) endThaw(h *hosted.Replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.thawing, h)
}

// melted forgets a freeze that is over, if it is the last one that is known of its partition.
func (m *merging) melted(id keys.PartitionID, f frozenSince) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.frozen[id] == f {
		delete(m.mu.frozen, id)
	}
}

// due is what this node has to do to end a freeze; nil: nothing.
func (m *merging) due(h *hosted.Replica, f *clusterpb.Freeze,
	late bool) func(context.Context) error {
	n := m.node
	left := n.replicas.Get(keys.PartitionID(f.GetPartition()))
	if left != nil && !left.Removed.Load() && late && left.Leading.Load() && !n.orders.busy(left) &&
		keys.CompareEpochs(left.Replica.Descriptor(), namedBy(f)) == 0 {
		return func(ctx context.Context) error { return n.giveUpMerge(ctx, left, f) }
	}
	if !h.Leading.Load() || !n.decidedHere(left, f) && !decidedInTable(n.tables.Load(), h, f) {
		return nil
	}
	return func(ctx context.Context) error {
		defer n.settling.add(h)
		return h.Replica.Reshape().Thaw(ctx, f)
	}
}

func namedBy(f *clusterpb.Freeze) *clusterpb.Partition {
	return &clusterpb.Partition{Generation: f.GetGeneration(), Membership: f.GetMembership()}
}

// decidedHere says whether the left neighbour's replica here shows that it has not consumed the
// frozen one, and will not.
//
// INVARIANT: a merge raises the generation. So a later membership of the generation that the freeze
// names proves it. A later generation does not: the left neighbour may have consumed the frozen
// one, split again, and come here by a snapshot that does not reach to the frozen one.
func (n *Node) decidedHere(left *hosted.Replica, f *clusterpb.Freeze) bool {
	if left == nil || left.Removed.Load() {
		return false
	}
	now := left.Replica.Descriptor()
	return now.GetGeneration() == f.GetGeneration() && now.GetMembership() > f.GetMembership()
}

// decidedInTable says whether the table does. It has all of a revision or nothing, and the core
// takes a merge into it together with what that removes. So if it lists the frozen one, that was
// not consumed by anything else that it lists. And if what ends where the frozen one begins has a
// later epoch than the freeze names, or is another partition of a later generation, then the
// attempt is over.
//
// INVARIANT: later it has to be. The table here may lag, and list what the left neighbour has split
// off from.
func decidedInTable(t *table.Table, h *hosted.Replica, f *clusterpb.Freeze) bool {
	listed := t.Partition(h.ID)
	if !t.Complete || listed == nil {
		return false
	}
	before := t.Before(listed)
	if before == nil || !bytes.Equal(before.End, listed.Start) {
		return false
	}
	if before.Id == f.GetPartition() {
		return keys.CompareEpochs(before, namedBy(f)) > 0
	}
	return before.Generation > f.GetGeneration()
}

// giveUpMerge gives the attempt up for which the right neighbour of a partition is frozen.
func (n *Node) giveUpMerge(ctx context.Context, left *hosted.Replica, f *clusterpb.Freeze) error {
	// Whatever becomes of it, the core has made its order for an epoch that is over, or is about to
	// be.
	defer n.settling.outdated(left)
	now := left.Replica.Descriptor()
	if now.GetGeneration() != f.GetGeneration() || now.GetMembership() != f.GetMembership() {
		return nil
	}
	next := proto.Clone(now).(*clusterpb.Partition)
	next.Membership++
	if err := left.Replica.Reshape().ChangeDescriptor(ctx, next); err != nil {
		return err
	}
	n.metrics.mergesGivenUp.Inc()
	n.log.Info("an attempt to merge a partition with its right neighbour was given up", "partition",
		left.ID)
	return nil
}

// consume carries an order out by which a partition consumes its right neighbour.
func (n *Node) consume(ctx context.Context, h *hosted.Replica, o *order) error {
	right := n.replicas.Get(keys.PartitionID(o.GetConsume().GetId()))
	if right == nil || right.Removed.Load() || !right.Leading.Load() {
		return fmt.Errorf("partition %d is not led here", o.GetConsume().GetId())
	}
	now, neighbour := h.Replica.Descriptor(), right.Replica.Descriptor()
	// One that is frozen for this epoch already is gone on with.
	again := proto.Equal(neighbour.GetFrozen(), &clusterpb.Freeze{Partition: uint64(h.ID),
		Generation: now.GetGeneration(), Membership: now.GetMembership()})
	if !again && keys.CompareEpochs(neighbour, o.GetConsume()) != 0 {
		n.settling.outdated(right)
		return fmt.Errorf("partition %s is at epoch (%d, %d), and was to be merged at epoch (%d, %d)",
			right.ID, neighbour.GetGeneration(), neighbour.GetMembership(),
			o.GetConsume().GetGeneration(), o.GetConsume().GetMembership())
	}
	limited, cancel := context.WithTimeout(ctx, mergeTimeout)
	defer cancel()
	if !again {
		if err := right.Replica.Reshape().FreezeFor(limited, neighbour, now); err != nil {
			return err
		}
	}
	err := n.allHaveFreeze(limited, right)
	if err == nil {
		err = h.Replica.Reshape().Consume(limited, o.Target, right.Replica)
	}
	if err != nil && ctx.Err() == nil {
		// It is asked for again; no request is to wait for that.
		limited, cancel := context.WithTimeout(ctx, mergeTimeout)
		defer cancel()
		giveUp := n.giveUpMerge(limited, h, right.Replica.Descriptor().GetFrozen())
		if giveUp != nil {
			n.log.Warn("an attempt to merge a partition cannot be given up yet", "partition", h.ID,
				"error", giveUp)
		}
	}
	return err
}

// allHaveFreeze waits until all replicas of a partition that is led here have the entry in their
// logs by which it was frozen.
func (n *Node) allHaveFreeze(ctx context.Context, right *hosted.Replica) error {
	index, frozen := right.Replica.FrozenAt()
	if !frozen {
		return fmt.Errorf("partition %s is not frozen any more", right.ID)
	}
	for {
		followers, ok := followersOf(ctx, right)
		lacks := uint64(0)
		for _, r := range right.Replica.Descriptor().GetReplicas() {
			id := keys.ReplicaID(r.GetReplica())
			if id != right.Self && (!ok || followers[id].Match < index) {
				lacks = r.GetNode()
			}
		}
		if lacks == 0 {
			return nil
		}
		if task.Pause(ctx, matchCheck) != nil {
			return fmt.Errorf("node %d does not have all of partition %s", lacks, right.ID)
		}
	}
}

// mergeObstacle is what a merge has to wait for, in words; empty: nothing.
func (n *Node) mergeObstacle(ctx context.Context, h *hosted.Replica, o *order) []string {
	right := n.replicas.Get(keys.PartitionID(o.GetConsume().GetId()))
	if right == nil || right.Removed.Load() || !right.Leading.Load() {
		return []string{fmt.Sprintf("partition %d, its right neighbour, is led by another node",
			o.GetConsume().GetId())}
	}
	now := h.Replica.Descriptor()
	if f := right.Replica.Descriptor().GetFrozen(); f != nil && (f.GetPartition() != uint64(h.ID) ||
		keys.CompareEpochs(now, namedBy(f)) != 0) {
		return []string{fmt.Sprintf("an earlier attempt to merge partition %s has to end", right.ID)}
	}
	var waits []string
	for _, of := range [...]*hosted.Replica{h, right} {
		followers, ok := followersOf(ctx, of)
		if !ok {
			return append(waits, "the leader does not answer")
		}
		last := of.Group.Applied()
		for _, r := range of.Replica.Descriptor().GetReplicas() {
			id := keys.ReplicaID(r.GetReplica())
			p := followers[id]
			switch {
			case id == of.Self:
			case !p.Active || n.host.PeerDown(r.GetNode()):
				waits = append(waits, fmt.Sprintf("node %d does not answer", r.GetNode()))
			case p.Snapshot || p.Match+nearlyAll < last:
				waits = append(waits, fmt.Sprintf("node %d does not have everything of partition %s yet",
					r.GetNode(), of.ID))
			}
		}
	}
	return waits
}

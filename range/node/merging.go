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
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A node consumes a right neighbour by itself, when its replica applies the entry of the merge
// (range/replica/reshape, merge.go). Three things are left to the node.
//
// The leader of both partitions carries out the core's order: it freezes the right one, waits until
// all its replicas have the freeze in their logs, and merges.
//
// A freeze ends. If the left neighbour has not consumed the frozen partition in time, its leader
// cancels the attempt by raising its own epoch. The leader of the frozen partition ends the freeze
// when the left neighbour on its node has a later epoch than the freeze names, and has not consumed
// it. Neither waits for the other, nor for the core.
//
// The replica that was consumed is closed. Its log is removed when the state of the left neighbour
// is durable: until then a crash may take the merge back, and it is applied again.

const (
	// freezeCheck is the interval at which frozen partitions are checked; matchCheck is that at
	// which a leader checks the followers of a frozen partition.
	freezeCheck, matchCheck = 50 * time.Millisecond, 2 * time.Millisecond
	// mergeTimeout is how long a partition is frozen before the attempt to merge it is cancelled.
	mergeTimeout = 5 * time.Second
)

// merging does a node's part of merges.
type merging struct {
	node      *Node
	wakeWatch task.Signal
	mu        struct {
		sync.Mutex
		// frozen are the freezes of partitions on this node.
		frozen map[keys.PartitionID]frozenSince
		// thawing are the replicas whose freeze a goroutine is ending.
		thawing map[*hosted.Replica]struct{}
	}
}

// frozenSince is a freeze, with the time since which it is known (Node.now).
type frozenSince struct {
	freeze *clusterpb.Freeze
	at     int64
}

func (m *merging) init(n *Node) {
	m.node, m.wakeWatch = n, task.NewSignal()
	m.mu.frozen = make(map[keys.PartitionID]frozenSince)
	m.mu.thawing = make(map[*hosted.Replica]struct{})
}

// froze watches a freeze until it is over; see replica.Node.Froze.
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
			if backoff.Sleep(ctx, freezeCheck) != nil {
				return
			}
		}
	}
}

// lookAtFrozen checks all freezes, and reports whether there are any.
func (m *merging) lookAtFrozen(ctx context.Context, working *sync.WaitGroup) bool {
	n := m.node
	m.mu.Lock()
	all := maps.Clone(m.mu.frozen)
	m.mu.Unlock()
	for id, f := range all {
		late := n.base.Now()-f.at > int64(mergeTimeout)
		h := n.replicas.Get(id)
		if h == nil {
			// The replica may be opening.
			if late {
				m.melted(id, f)
			}
			continue
		}
		if !proto.Equal(h.Replica.Descriptor().GetFrozen(), f.freeze) || h.Removed.Load() ||
			h.Replica.SubsumedBy() != nil {
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
				_ = backoff.Sleep(ctx, orderAgain)
			}
		})
	}
	return len(all) > 0
}

// beginThaw claims the end of a partition's freeze; false if another goroutine is ending it.
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

// melted forgets a freeze that is over, unless a later one of its partition is known.
func (m *merging) melted(id keys.PartitionID, f frozenSince) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.frozen[id] == f {
		delete(m.mu.frozen, id)
	}
}

// due returns what this node has to do to end a freeze; nil if there is nothing.
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

// decidedHere reports that the left neighbour's replica here proves that it has not consumed the
// frozen partition, and never will.
//
// INVARIANT: a merge raises the generation. So a later membership with the generation that the
// freeze names proves it. A later generation does not: the left neighbour may have consumed the
// frozen partition, split again, and come here by a snapshot that does not reach to the frozen
// partition.
func (n *Node) decidedHere(left *hosted.Replica, f *clusterpb.Freeze) bool {
	if left == nil || left.Removed.Load() {
		return false
	}
	now := left.Replica.Descriptor()
	return now.GetGeneration() == f.GetGeneration() && now.GetMembership() > f.GetMembership()
}

// decidedInTable reports that the table proves the same. A table has all of a revision or nothing,
// and the core enters a merge together with the removal of the partition that was consumed. So if
// the table lists the frozen partition, no other partition of the table has consumed it. The
// attempt is over if the partition that ends where the frozen one begins has a later epoch than the
// freeze names, or is another partition of a later generation.
//
// INVARIANT: it must be later. The table here may lag, and list an ancestor of the left neighbour.
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

// giveUpMerge cancels the attempt for which the right neighbour of a partition is frozen.
func (n *Node) giveUpMerge(ctx context.Context, left *hosted.Replica, f *clusterpb.Freeze) error {
	// Whatever the outcome, the core has made its order for an epoch that is over, or is about to
	// end.
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

// consume carries out an order by which a partition consumes its right neighbour.
func (n *Node) consume(ctx context.Context, h *hosted.Replica, o *order) error {
	right := n.replicas.Get(keys.PartitionID(o.GetConsume().GetId()))
	if right == nil || right.Removed.Load() || !right.Leading.Load() {
		return fmt.Errorf("partition %d is not led here", o.GetConsume().GetId())
	}
	now, neighbour := h.Replica.Descriptor(), right.Replica.Descriptor()
	// A freeze for this epoch is there already: continue with it.
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
		// The core repeats the order; no request must wait longer for it.
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

// allHaveFreeze waits until all replicas of a partition that is led here have the entry of the
// freeze in their logs.
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
		if backoff.Sleep(ctx, matchCheck) != nil {
			return fmt.Errorf("node %d does not have all of partition %s", lacks, right.ID)
		}
	}
}

// mergeObstacle returns, in words, what a merge has to wait for; empty if nothing.
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
			case !p.Active || n.host.Peers().Down(r.GetNode()):
				waits = append(waits, fmt.Sprintf("node %d does not answer", r.GetNode()))
			case p.Snapshot || p.Match+nearlyAll < last:
				waits = append(waits, fmt.Sprintf("node %d does not have everything of partition %s yet",
					r.GetNode(), of.ID))
			}
		}
	}
	return waits
}

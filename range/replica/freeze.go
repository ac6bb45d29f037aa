package replica

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition that its left neighbour is to consume is frozen before, by an entry of its log. From
// then on it evaluates nothing, serves no read, and its replicas do not change: what it holds, and
// what it has promised, is what its left neighbour will take over, and does not change any more.
// What is asked of it waits, for that takes a moment.
//
// The entry is evaluated with nothing in flight, and closes every timestamp at which the leader has
// served a read, as that of a split does.
//
// It names the epoch of the left neighbour. What that does as its next change decides: it consumes
// the frozen partition, or it does not, and then never will. So a frozen partition thaws when its
// left neighbour has another epoch and has not consumed it; nothing else ends the freeze, least of
// all time.

// FreezeFor freezes the partition, if this replica leads, and the descriptor has the epoch of now.
// by is the descriptor of its left neighbour, which is to consume it as its next change. It returns
// when that is applied here. When ctx ends first, it may still take effect.
func (r *Replica) FreezeFor(ctx context.Context, now, by *clusterpb.Partition) error {
	next := proto.Clone(now).(*clusterpb.Partition)
	next.Membership++
	next.Frozen = &clusterpb.Freeze{Partition: by.GetId(), Generation: by.GetGeneration(),
		Membership: by.GetMembership()}
	value, err := next.MarshalVT()
	if err != nil {
		return err
	}
	err = r.command(ctx, proposal.KindFreeze, func(e *evaluation, p *proposal.Entry) (bool, error) {
		if err := checkFreeze(e.Descriptor, next); err != nil {
			return false, err
		}
		if err := checkNeighbours(by, e.Descriptor); err != nil {
			return false, err
		}
		if e.lowDue {
			// What an earlier leader has served is not known, and is to be closed.
			return false, errClockUnbelieved
		}
		e.batch = r.state.NewBatch()
		if err := e.batch.Set(keys.LocalKey(r.id, keys.SuffixDescriptor), value, nil); err != nil {
			return false, err
		}
		return true, r.holdBack(e, p)
	})
	if err != nil {
		return fmt.Errorf("partition %s: freezing it: %w", r.id, err)
	}
	return nil
}

// holdBack has all that comes after an entry wait for it, and the entry close what was served.
func (r *Replica) holdBack(e *evaluation, p *proposal.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.is(e.epoch) {
		return errNotLeader
	}
	// INVARIANT: under the lock under which reads enter the timestamp cache: what is not in it by now
	// waits for the entry.
	p.Closed = r.mu.cache.Max()
	r.mu.holding = e.proposal
	return nil
}

// checkFreeze says why a descriptor is not that of a partition which is frozen next.
func checkFreeze(now, next *clusterpb.Partition) error {
	if now.Frozen != nil {
		return fmt.Errorf("it is frozen already, for partition %d", now.Frozen.Partition)
	}
	if err := allVoters(now); err != nil {
		return err
	}
	f := next.Frozen
	if f.GetPartition() == 0 || f.GetPartition() == now.Id || f.GetGeneration() == 0 {
		return fmt.Errorf("it would be frozen for partition %d of generation %d", f.GetPartition(),
			f.GetGeneration())
	}
	expected := proto.Clone(now).(*clusterpb.Partition)
	expected.Membership, expected.Frozen = now.Membership+1, f
	if !proto.Equal(expected, next) {
		return fmt.Errorf("it is at epoch (%d, %d), and what was to be frozen is another one, (%d, %d)",
			now.Generation, now.Membership, next.Generation, next.Membership-1)
	}
	return nil
}

// allVoters says which replica of a partition is not a voter for good.
func allVoters(p *clusterpb.Partition) error {
	for _, replica := range p.Replicas {
		if replica.Role != clusterpb.ReplicaRole_VOTER {
			return fmt.Errorf("replica %d on node %d is no voter, or not for ever: partitions split and "+
				"merge when no change of their replicas is under way", replica.Replica, replica.Node)
		}
	}
	return nil
}

// Thaw ends a freeze, if this replica leads, and this node's replica of its left neighbour has
// not consumed it. The caller has seen that one have a later epoch than the freeze names. It
// returns when that is applied here.
func (r *Replica) Thaw(ctx context.Context, f *clusterpb.Freeze) error {
	err := r.queueCommand(ctx, &internalCommand{kind: proposal.KindDescriptor, thaws: true,
		evaluate: func(e *evaluation, _ *proposal.Entry) (bool, error) {
			if !proto.Equal(e.Descriptor.Frozen, f) {
				return false, errors.New("it is not frozen any more, or for another epoch")
			}
			// INVARIANT: what consumes it says so before its own descriptor shows that.
			if r.consumed.Load() {
				return false, errConsumed
			}
			next := thawed(e.Descriptor)
			value, err := next.MarshalVT()
			if err != nil {
				return false, err
			}
			e.batch = r.state.NewBatch()
			return true, e.batch.Set(keys.LocalKey(r.id, keys.SuffixDescriptor), value, nil)
		}})
	if err != nil {
		return fmt.Errorf("partition %s: ending its freeze: %w", r.id, err)
	}
	return nil
}

// thawed is the descriptor of a partition that is frozen no more.
func thawed(p *clusterpb.Partition) *clusterpb.Partition {
	next := proto.Clone(p).(*clusterpb.Partition)
	next.Membership, next.Frozen = next.Membership+1, nil
	return next
}

// checkThaw allows a frozen partition one change only, and others none that is for a freeze.
func checkThaw(now, next *clusterpb.Partition) error {
	switch {
	case now.Frozen == nil && next.Frozen == nil:
		return nil
	case now.Frozen == nil:
		return errors.New("it would be frozen by another entry than that of a freeze")
	case !proto.Equal(next, thawed(now)):
		return fmt.Errorf("it is frozen for partition %d, and does not change", now.Frozen.Partition)
	}
	return nil
}

// holdLocked has all requests of a frozen partition wait, also those that waited for the entry
// which has frozen it; and lets them go on when it is not frozen any more. It returns an entry with
// the reads that are to go on, or nil.
func (r *Replica) holdLocked() (over *pendingEntry) {
	held := r.mu.holding
	frozen := r.Descriptor().GetFrozen() != nil
	switch {
	case !frozen && held != nil && held.standing:
		r.mu.holding = nil
		r.mu.reads.waiting -= len(held.waiters)
		return held
	case frozen && r.mu.leadership.serving && held == nil:
		r.mu.holding = &pendingEntry{standing: true}
	}
	return nil
}

// standLocked has the reads that wait for the entry that has frozen the partition wait on.
func (r *Replica) standLocked(p *pendingEntry) {
	if r.mu.holding == p && r.Descriptor().GetFrozen() != nil {
		r.mu.holding = &pendingEntry{standing: true, waiters: p.waiters}
		p.waiters = nil
	}
}

package node

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// updatePartitions bounds the partitions, and the leaders, in one message to a subscriber.
	updatePartitions = 1000
	// updatePeriod is the shortest time between two messages of changes: what happens in between
	// goes together.
	updatePeriod = 50 * time.Millisecond
)

// Subscribe calls emit with everything this node knows, in several updates of which the last is
// complete, and then with changes, until the context ends or emit returns an error. Leaders are
// those that this node's own replicas know.
//
// A subscriber that is slow has nothing queued for it: it gets the difference between what it saw
// and what there is.
func (n *Node) Subscribe(ctx context.Context, emit func(*clusterpb.TableUpdate) error) error {
	return n.subscribe(ctx, interest{all: true}, nil, emit)
}

// SubscribeTo is Subscribe for one that wants the partitions and leaders of some keyspaces only:
// those of first, and those that come from more, which is not closed. A table of no more than small
// partitions it gets as a whole.
func (n *Node) SubscribeTo(ctx context.Context, first []uint32, more <-chan []uint32, small int,
	emit func(*clusterpb.TableUpdate) error) error {
	seen, err := n.awaitTable(ctx)
	if err != nil {
		return err
	}
	i := interest{all: seen.partitions.Len() <= small, keyspaces: make(map[uint32]struct{})}
	for _, id := range first {
		i.keyspaces[id] = struct{}{}
	}
	return n.subscribe(ctx, i, more, emit)
}

// awaitTable waits for a complete table.
func (n *Node) awaitTable(ctx context.Context) (*Table, error) {
	t := n.tables.load()
	for !t.Complete {
		select {
		case <-t.Changed():
			t = n.tables.load()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return t, nil
}

func (n *Node) subscribe(ctx context.Context, i interest, more <-chan []uint32,
	emit func(*clusterpb.TableUpdate) error) error {
	seen, err := n.awaitTable(ctx)
	if err != nil {
		return err
	}
	hints, version, changed := n.leadersSince(0)
	u := i.whole(seen)
	u.Leaders = i.leaders(seen, hints)
	// A subscriber waits for what it asks for. Changes come with the next update: one that is in this
	// already does no harm.
	widen := func(ids []uint32) error {
		u := i.add(seen, ids)
		if u == nil {
			return nil
		}
		u.Leaders = n.leadersOf(u.Partitions)
		return emitParts(u, emit)
	}
	wait := func(a, b <-chan struct{}, timer <-chan time.Time) error {
		for {
			select {
			case <-a:
				return nil
			case <-b:
				return nil
			case <-timer:
				return nil
			case ids := <-more:
				if err := widen(ids); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	for {
		if err := emitParts(u, emit); err != nil {
			return err
		}
		if err := wait(seen.Changed(), changed, nil); err != nil {
			return err
		}
		period := time.NewTimer(updatePeriod)
		err := wait(nil, nil, period.C)
		period.Stop()
		if err != nil {
			return err
		}
		next := n.tables.load()
		u = i.changes(seen, next)
		hints, version, changed = n.leadersSince(version)
		u.Leaders = i.leaders(next, hints)
		seen = next
	}
}

// leadersOf are the leaders of partitions, as far as this node's replicas know them.
func (n *Node) leadersOf(partitions []*clusterpb.Partition) (known []*clusterpb.Leader) {
	for _, p := range partitions {
		if l := n.Leader(keys.PartitionID(p.Id)); l != nil {
			known = append(known, l)
		}
	}
	return known
}

// emitParts emits an update in parts of bounded size. What a reader needs to understand a part
// comes in it or before it.
func emitParts(u *clusterpb.TableUpdate, emit func(*clusterpb.TableUpdate) error) error {
	for {
		part := u
		last := len(u.Partitions) <= updatePartitions && len(u.Leaders) <= updatePartitions
		if !last {
			part = &clusterpb.TableUpdate{
				Nodes: u.Nodes, Keyspaces: u.Keyspaces, Cluster: u.Cluster,
				RemovedNodes: u.RemovedNodes, RemovedKeyspaces: u.RemovedKeyspaces,
				RemovedPartitions: u.RemovedPartitions,
				Partitions:        u.Partitions[:min(len(u.Partitions), updatePartitions)],
			}
			u = &clusterpb.TableUpdate{
				Partitions: u.Partitions[len(part.Partitions):], Leaders: u.Leaders,
				Cluster: u.Cluster, Revision: u.Revision, Complete: u.Complete,
				Followed: u.Followed, FollowsAll: u.FollowsAll,
			}
			if len(part.Partitions) < updatePartitions {
				part.Leaders = u.Leaders[:min(len(u.Leaders), updatePartitions)]
				u.Leaders = u.Leaders[len(part.Leaders):]
			}
		}
		if err := emit(part); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

package table

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// updatePartitions bounds the partitions, and the leaders, in one message to a subscriber.
	updatePartitions = 1000
	// updatePeriod is the shortest time between two messages of changes; changes in between are
	// sent together.
	updatePeriod = 50 * time.Millisecond
)

// Leaders provides the leaders that the node's own replicas know.
type Leaders interface {
	// Leader returns the leader of a partition; nil if it is not known.
	Leader(partition keys.PartitionID) *clusterpb.Leader
	// LeadersSince returns the leaders that changed after a version, all that are known for version
	// 0, the version reached, and a channel that is closed at the next change.
	LeadersSince(version uint64) (changes []*clusterpb.Leader, reached uint64,
		changed <-chan struct{})
}

// Subscribe calls emit with everything that is known, in several updates of which the last is
// complete, and then with changes, until the context ends or emit returns an error.
//
// Nothing is queued for a slow subscriber: it gets the difference between the table that it saw
// last and the present one.
func (c *Current) Subscribe(ctx context.Context, l Leaders,
	emit func(*clusterpb.TableUpdate) error) error {
	return c.subscribe(ctx, l, interest{all: true}, nil, emit)
}

// SubscribeTo is Subscribe for a subscriber that wants the partitions and leaders of some keyspaces
// only: those of first, and those that come from more, which is never closed. A table of at most
// small partitions is sent as a whole.
func (c *Current) SubscribeTo(ctx context.Context, l Leaders, first []uint32,
	more <-chan []uint32, small int, emit func(*clusterpb.TableUpdate) error) error {
	seen, err := c.complete(ctx)
	if err != nil {
		return err
	}
	i := interest{all: seen.partitions.Len() <= small, keyspaces: make(map[uint32]struct{})}
	for _, id := range first {
		i.keyspaces[id] = struct{}{}
	}
	return c.subscribe(ctx, l, i, more, emit)
}

// complete waits for a complete table.
func (c *Current) complete(ctx context.Context) (*Table, error) {
	t := c.Load()
	for !t.Complete {
		select {
		case <-t.Changed():
			t = c.Load()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return t, nil
}

func (c *Current) subscribe(ctx context.Context, l Leaders, i interest, more <-chan []uint32,
	emit func(*clusterpb.TableUpdate) error) error {
	seen, err := c.complete(ctx)
	if err != nil {
		return err
	}
	hints, version, changed := l.LeadersSince(0)
	u := i.whole(seen)
	u.Leaders = i.leaders(seen, hints)
	// A subscriber waits for what it asks for, so it is sent at once. Changes come with the next
	// update: sending one twice does no harm.
	widen := func(ids []uint32) error {
		u := i.add(seen, ids)
		if u == nil {
			return nil
		}
		for _, p := range u.Partitions {
			if leader := l.Leader(keys.PartitionID(p.Id)); leader != nil {
				u.Leaders = append(u.Leaders, leader)
			}
		}
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
		next := c.Load()
		u = i.changes(seen, next)
		hints, version, changed = l.LeadersSince(version)
		u.Leaders = i.leaders(next, hints)
		seen = next
	}
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

// interest says of which keyspaces a subscriber wants the partitions and their leaders. It gets all
// nodes and keyspaces.
type interest struct {
	// all is set if the subscriber wants all keyspaces, including new ones.
	all       bool
	keyspaces map[uint32]struct{}
}

func (i *interest) in(keyspace uint32) bool {
	if i.all {
		return true
	}
	_, ok := i.keyspaces[keyspace]
	return ok
}

// whole returns everything in a table that the subscriber wants.
func (i *interest) whole(t *Table) *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Cluster: t.Cluster, Revision: t.Revision, Complete: true,
		Nodes: t.Nodes(), Keyspaces: t.Keyspaces(), FollowsAll: i.all}
	if i.all {
		u.Partitions = t.Partitions()
		return u
	}
	for id := range i.keyspaces {
		i.begin(u, t, id)
	}
	return u
}

// begin adds the partitions of a keyspace. If the keyspace is not known yet, the subscriber hears
// of it when it comes.
func (i *interest) begin(u *clusterpb.TableUpdate, t *Table, id uint32) {
	for p := range t.PartitionsOf(keys.KeyspaceID(id)) {
		u.Partitions = append(u.Partitions, p)
	}
	u.Followed = append(u.Followed, id)
}

// add widens the interest, and returns what has to be sent because of it, without leaders; nil if
// nothing has.
func (i *interest) add(t *Table, ids []uint32) *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Cluster: t.Cluster, Revision: t.Revision}
	for _, id := range ids {
		if i.in(id) {
			continue
		}
		i.keyspaces[id] = struct{}{}
		i.begin(u, t, id)
	}
	if len(u.Followed) == 0 {
		return nil
	}
	return u
}

// changes returns the part of the difference between two tables that the subscriber wants.
func (i *interest) changes(from, to *Table) *clusterpb.TableUpdate {
	u := Diff(from, to)
	if i.all {
		return u
	}
	partitions, removed := u.Partitions, u.RemovedPartitions
	u.Partitions, u.RemovedPartitions = nil, nil
	for _, p := range partitions {
		if i.in(p.Keyspace) {
			u.Partitions = append(u.Partitions, p)
		}
	}
	for _, id := range removed {
		if p := from.Partition(keys.PartitionID(id)); p != nil && i.in(p.Keyspace) {
			u.RemovedPartitions = append(u.RemovedPartitions, id)
		}
	}
	for _, id := range u.RemovedKeyspaces {
		delete(i.keyspaces, id) // ids never come back
	}
	return u
}

// leaders returns the leaders of partitions that the subscriber wants.
func (i *interest) leaders(t *Table, all []*clusterpb.Leader) []*clusterpb.Leader {
	if i.all {
		return all
	}
	var wanted []*clusterpb.Leader
	for _, l := range all {
		if p := t.Partition(keys.PartitionID(l.Partition)); p != nil && i.in(p.Keyspace) {
			wanted = append(wanted, l)
		}
	}
	return wanted
}

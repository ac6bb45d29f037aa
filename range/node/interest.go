package node

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// interest is of which keyspaces a subscriber wants the partitions and their leaders. Of nodes and
// keyspaces it gets all.
type interest struct {
	// all: of all keyspaces, and those to come.
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

// whole is everything in a table that the subscriber wants.
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

// begin adds the partitions of a keyspace. One that is not there has none, and when it comes the
// subscriber hears of it.
func (i *interest) begin(u *clusterpb.TableUpdate, t *Table, id uint32) {
	for p := range t.PartitionsOf(keys.KeyspaceID(id)) {
		u.Partitions = append(u.Partitions, p)
	}
	u.Followed = append(u.Followed, id)
}

// add widens the interest, and returns what is to be sent because of it, without leaders; nil if
// that is nothing.
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

// changes is what the subscriber wants of the difference between two tables.
func (i *interest) changes(from, to *Table) *clusterpb.TableUpdate {
	u := diff(from, to)
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

// leaders keeps the leaders of partitions that the subscriber wants.
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

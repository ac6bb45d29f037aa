package node

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Table is one immutable picture of nodes, keyspaces and partitions. What its methods return must
// not be changed.
type Table struct {
	// Cluster is the id of the cluster, 0 if nothing is known yet.
	Cluster uint64
	// Revision is the core's revision that this picture has reached.
	Revision uint64
	// Complete says that everything that existed at Revision is in it.
	Complete bool

	nodes     map[keys.NodeID]*clusterpb.Node
	keyspaces map[keys.KeyspaceID]*clusterpb.Keyspace
	// partitions are sorted by id.
	partitions []*clusterpb.Partition
	// changed is closed when a newer table takes this one's place.
	changed chan struct{}
}

func newTable() *Table {
	return &Table{
		nodes:     make(map[keys.NodeID]*clusterpb.Node),
		keyspaces: make(map[keys.KeyspaceID]*clusterpb.Keyspace),
		changed:   make(chan struct{}),
	}
}

// Changed is closed when a newer table has taken this one's place.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// Node finds a node; nil if it is not known.
func (t *Table) Node(id keys.NodeID) *clusterpb.Node { return t.nodes[id] }

// Nodes returns all nodes by ascending id.
func (t *Table) Nodes() []*clusterpb.Node {
	return slices.SortedFunc(maps.Values(t.nodes),
		func(a, b *clusterpb.Node) int { return cmp.Compare(a.Id, b.Id) })
}

// Keyspace finds a keyspace; nil if it is not known.
func (t *Table) Keyspace(id keys.KeyspaceID) *clusterpb.Keyspace { return t.keyspaces[id] }

// Keyspaces returns all keyspaces by ascending id.
func (t *Table) Keyspaces() []*clusterpb.Keyspace {
	return slices.SortedFunc(maps.Values(t.keyspaces),
		func(a, b *clusterpb.Keyspace) int { return cmp.Compare(a.Id, b.Id) })
}

// Partitions returns all partitions by ascending id.
func (t *Table) Partitions() []*clusterpb.Partition { return t.partitions }

// Partition finds a partition; nil if it is not known.
func (t *Table) Partition(id keys.PartitionID) *clusterpb.Partition {
	i, found := slices.BinarySearchFunc(t.partitions, uint64(id),
		func(p *clusterpb.Partition, id uint64) int { return cmp.Compare(p.Id, id) })
	if !found {
		return nil
	}
	return t.partitions[i]
}

// olderEpoch says whether a's epoch is lower than b's.
func olderEpoch(a, b *clusterpb.Partition) bool {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation),
		cmp.Compare(a.Membership, b.Membership)) < 0
}

// with returns the table with an update on top. One update copies each list at most once, however
// much it changes. A descriptor with a lower epoch than the one known is left out.
func (t *Table) with(u *clusterpb.TableUpdate) *Table {
	next := *t
	next.changed = make(chan struct{})
	next.Revision = max(t.Revision, u.Revision)
	if u.Cluster != 0 {
		next.Cluster = u.Cluster
	}
	if len(u.Nodes) > 0 || len(u.RemovedNodes) > 0 {
		next.nodes = maps.Clone(t.nodes)
		for _, n := range u.Nodes {
			next.nodes[keys.NodeID(n.Id)] = n
		}
		for _, id := range u.RemovedNodes {
			delete(next.nodes, keys.NodeID(id))
		}
	}
	if len(u.Keyspaces) > 0 || len(u.RemovedKeyspaces) > 0 {
		next.keyspaces = maps.Clone(t.keyspaces)
		for _, k := range u.Keyspaces {
			next.keyspaces[keys.KeyspaceID(k.Id)] = k
		}
		for _, id := range u.RemovedKeyspaces {
			delete(next.keyspaces, keys.KeyspaceID(id))
		}
	}
	if len(u.Partitions) > 0 || len(u.RemovedPartitions) > 0 {
		next.partitions = mergePartitions(t.partitions, u.Partitions, u.RemovedPartitions)
	}
	return &next
}

// mergePartitions merges sorted descriptors with others, of which the last of an id counts, and
// leaves out what is removed.
func mergePartitions(old, changed []*clusterpb.Partition, removed []uint64) []*clusterpb.Partition {
	changed = slices.Clone(changed)
	slices.SortStableFunc(changed,
		func(a, b *clusterpb.Partition) int { return cmp.Compare(a.Id, b.Id) })
	var gone map[uint64]struct{}
	if len(removed) > 0 {
		gone = make(map[uint64]struct{}, len(removed))
		for _, id := range removed {
			gone[id] = struct{}{}
		}
	}
	merged := make([]*clusterpb.Partition, 0, len(old)+len(changed))
	add := func(p *clusterpb.Partition) {
		if _, dead := gone[p.Id]; dead {
			return
		}
		if n := len(merged); n > 0 && merged[n-1].Id == p.Id {
			if !olderEpoch(p, merged[n-1]) {
				merged[n-1] = p
			}
			return
		}
		merged = append(merged, p)
	}
	for len(old) > 0 || len(changed) > 0 {
		if len(changed) == 0 || (len(old) > 0 && old[0].Id <= changed[0].Id) {
			add(old[0])
			old = old[1:]
		} else {
			add(changed[0])
			changed = changed[1:]
		}
	}
	return merged
}

// replacedBy returns a whole new table in place of this one. What did not change keeps its pointer,
// so that Diff finds only what did; a descriptor with a lower epoch than the one known gives way to
// that.
func (t *Table) replacedBy(fresh *Table) *Table {
	next := *fresh
	next.changed = make(chan struct{})
	next.nodes = maps.Clone(fresh.nodes)
	for id, n := range fresh.nodes {
		if old := t.nodes[id]; old != nil && proto.Equal(old, n) {
			next.nodes[id] = old
		}
	}
	next.keyspaces = maps.Clone(fresh.keyspaces)
	for id, k := range fresh.keyspaces {
		if old := t.keyspaces[id]; old != nil && proto.Equal(old, k) {
			next.keyspaces[id] = old
		}
	}
	next.partitions = slices.Clone(fresh.partitions)
	for i, p := range next.partitions {
		if old := t.Partition(keys.PartitionID(p.Id)); old != nil && (olderEpoch(p, old) ||
			proto.Equal(old, p)) {
			next.partitions[i] = old
		}
	}
	return &next
}

// diff is the update that leads from one table to a later one. Its cost is that of comparing two
// lists of pointers: a follower of the table keeps the last one that it saw, and needs no queue.
func diff(from, to *Table) *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Cluster: to.Cluster, Revision: to.Revision}
	for _, n := range to.Nodes() {
		if from.nodes[keys.NodeID(n.Id)] != n {
			u.Nodes = append(u.Nodes, n)
		}
	}
	for _, n := range from.Nodes() {
		if to.nodes[keys.NodeID(n.Id)] == nil {
			u.RemovedNodes = append(u.RemovedNodes, n.Id)
		}
	}
	for _, k := range to.Keyspaces() {
		if from.keyspaces[keys.KeyspaceID(k.Id)] != k {
			u.Keyspaces = append(u.Keyspaces, k)
		}
	}
	for _, k := range from.Keyspaces() {
		if to.keyspaces[keys.KeyspaceID(k.Id)] == nil {
			u.RemovedKeyspaces = append(u.RemovedKeyspaces, k.Id)
		}
	}
	a, b := from.partitions, to.partitions
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || (len(a) > 0 && a[0].Id < b[0].Id):
			u.RemovedPartitions = append(u.RemovedPartitions, a[0].Id)
			a = a[1:]
		case len(a) == 0 || b[0].Id < a[0].Id:
			u.Partitions = append(u.Partitions, b[0])
			b = b[1:]
		default:
			if a[0] != b[0] {
				u.Partitions = append(u.Partitions, b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return u
}

// tables holds the current table. One goroutine publishes.
type tables struct {
	current atomic.Pointer[Table]
}

func (t *tables) init() { t.current.Store(newTable()) }

func (t *tables) load() *Table { return t.current.Load() }

func (t *tables) publish(next *Table) {
	old := t.current.Swap(next)
	close(old.changed)
}

package table

import (
	"bytes"
	"cmp"
	"iter"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/tree"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Table is an immutable picture of nodes, keyspaces and partitions. Results of its methods must not
// be changed. Successive tables share what did not change.
type Table struct {
	// Cluster is the id of the cluster, 0 if nothing is known yet.
	Cluster uint64
	// Revision is the core's revision that this picture has reached.
	Revision uint64
	// Complete is set if the table has everything that existed at Revision.
	Complete bool
	// Outdated is set if the table was read from the disk in another format, and may lack what the
	// core has sent: the core has to send everything. See Format.
	Outdated bool

	nodes      tree.Tree[uint64, *clusterpb.Node]
	keyspaces  tree.Tree[uint32, *clusterpb.Keyspace]
	partitions tree.Tree[uint64, *clusterpb.Partition]
	// members are the same partitions by keyspace and in key order.
	members tree.Tree[placed, *clusterpb.Partition]
	// changed is closed when a newer table replaces this one.
	changed chan struct{}
}

// placed orders partitions by keyspace, and in key order. Two known descriptors may overlap.
type placed struct {
	keyspace  uint32
	start     []byte // an internal key
	partition uint64
}

func placedOf(p *clusterpb.Partition) placed { return placed{p.Keyspace, p.Start, p.Id} }

func compareMembers(a, b placed) int {
	return cmp.Or(cmp.Compare(a.keyspace, b.keyspace), bytes.Compare(a.start, b.start),
		cmp.Compare(a.partition, b.partition))
}

func New() *Table {
	return &Table{
		nodes:      tree.NewOrdered[uint64, *clusterpb.Node](),
		keyspaces:  tree.NewOrdered[uint32, *clusterpb.Keyspace](),
		partitions: tree.NewOrdered[uint64, *clusterpb.Partition](),
		members:    tree.New[placed, *clusterpb.Partition](compareMembers),
		changed:    make(chan struct{}),
	}
}

// Dropped reports whether a keyspace was dropped, or is being dropped. The table is complete.
func (t *Table) Dropped(id keys.KeyspaceID) bool {
	k := t.Keyspace(id)
	return k == nil || k.State == clusterpb.KeyspaceState_DROPPING
}

// Changed returns a channel that is closed when a newer table has replaced this one.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// Node finds a node; nil if it is not known.
func (t *Table) Node(id keys.NodeID) *clusterpb.Node {
	n, _ := t.nodes.Get(uint64(id))
	return n
}

// Nodes returns all nodes by ascending id.
func (t *Table) Nodes() []*clusterpb.Node { return t.nodes.Values() }

// Keyspace finds a keyspace; nil if it is not known.
func (t *Table) Keyspace(id keys.KeyspaceID) *clusterpb.Keyspace {
	k, _ := t.keyspaces.Get(uint32(id))
	return k
}

// Keyspaces returns all keyspaces by ascending id.
func (t *Table) Keyspaces() []*clusterpb.Keyspace { return t.keyspaces.Values() }

// Partitions returns all partitions by ascending id, in a new slice.
func (t *Table) Partitions() []*clusterpb.Partition { return t.partitions.Values() }

// Partition finds a partition; nil if it is not known.
func (t *Table) Partition(id keys.PartitionID) *clusterpb.Partition {
	p, _ := t.partitions.Get(uint64(id))
	return p
}

// PartitionsOf iterates over the partitions of a keyspace in key order.
func (t *Table) PartitionsOf(id keys.KeyspaceID) iter.Seq[*clusterpb.Partition] {
	return func(yield func(*clusterpb.Partition) bool) {
		for at, p := range t.members.From(placed{keyspace: uint32(id)}) {
			if at.keyspace != uint32(id) || !yield(p) {
				return
			}
		}
	}
}

// At returns the partition that has an internal key of a keyspace; nil if none is known.
func (t *Table) At(keyspace uint32, key []byte) *clusterpb.Partition {
	// Every partition that begins at the key sorts below all that begin after it.
	p, ok := t.members.Below(placed{keyspace: keyspace, start: keys.Next(key)})
	if !ok || p.Keyspace != keyspace || !keys.PartitionSpan(p).Contains(key) {
		return nil
	}
	return p
}

// Around calls visit for the partitions of a keyspace whose descriptors lie in a span of internal
// keys, up to most on either side of a key.
func (t *Table) Around(keyspace uint32, key []byte, span keys.Span, most int,
	visit func(*clusterpb.Partition)) {
	at := placed{keyspace: keyspace, start: key}
	left := most
	for _, p := range t.members.From(at) {
		if left == 0 || p.Keyspace != keyspace || !keys.PartitionSpan(p).Overlaps(span) {
			break
		}
		visit(p)
		left--
	}
	for left = most; left > 0; left-- {
		p, ok := t.members.Below(at)
		if !ok || p.Keyspace != keyspace || !keys.PartitionSpan(p).Overlaps(span) {
			return
		}
		visit(p)
		at = placedOf(p)
	}
}

// Before returns the partition whose start is the last one before that of another partition, in its
// keyspace; nil if there is none.
func (t *Table) Before(p *clusterpb.Partition) *clusterpb.Partition {
	before, ok := t.members.Below(placed{keyspace: p.Keyspace, start: p.Start})
	if !ok || before.Keyspace != p.Keyspace {
		return nil
	}
	return before
}

// olderEpoch reports whether a's epoch is lower than b's.
func olderEpoch(a, b *clusterpb.Partition) bool {
	return keys.CompareEpochs(a, b) < 0
}

// With returns the table with an update applied, at a cost in proportion to the update. A
// descriptor with a lower epoch than the known one is left out.
func (t *Table) With(u *clusterpb.TableUpdate) *Table {
	next := *t
	next.changed = make(chan struct{})
	next.Revision = max(t.Revision, u.Revision)
	if u.Cluster != 0 {
		next.Cluster = u.Cluster
	}
	nodes, keyspaces, partitions := t.nodes.Edit(), t.keyspaces.Edit(), t.partitions.Edit()
	for _, n := range u.Nodes {
		nodes.Set(n.Id, n)
	}
	for _, id := range u.RemovedNodes {
		nodes.Delete(id)
	}
	for _, k := range u.Keyspaces {
		keyspaces.Set(k.Id, k)
	}
	for _, id := range u.RemovedKeyspaces {
		keyspaces.Delete(id)
	}
	for _, p := range u.Partitions {
		if old, _ := partitions.View().Get(p.Id); old == nil || !olderEpoch(p, old) {
			partitions.Set(p.Id, p)
		}
	}
	for _, id := range u.RemovedPartitions {
		partitions.Delete(id)
	}
	next.nodes, next.keyspaces, next.partitions =
		nodes.Tree(), keyspaces.Tree(), partitions.Tree()
	next.members = membersLike(t, next.partitions)
	return &next
}

// membersLike returns the members that fit a later version of the partitions.
func membersLike(t *Table, partitions tree.Tree[uint64, *clusterpb.Partition],
) tree.Tree[placed, *clusterpb.Partition] {
	members := t.members.Edit()
	tree.Diff(t.partitions, partitions, func(c tree.Change[uint64, *clusterpb.Partition]) bool {
		if c.Had && (!c.Has || compareMembers(placedOf(c.Old), placedOf(c.New)) != 0) {
			members.Delete(placedOf(c.Old))
		}
		if c.Has {
			members.Set(placedOf(c.New), c.New)
		}
		return true
	})
	return members.Tree()
}

// replacedBy returns a whole new table in place of this one. What did not change keeps its pointer,
// so that diff finds only changes. A descriptor with a lower epoch than the known one gives way to
// that.
func (t *Table) replacedBy(fresh *Table) *Table {
	next := *fresh
	next.changed = make(chan struct{})
	next.nodes = replaced(t.nodes, fresh.nodes,
		func(old, n *clusterpb.Node) bool { return proto.Equal(old, n) })
	next.keyspaces = replaced(t.keyspaces, fresh.keyspaces,
		func(old, k *clusterpb.Keyspace) bool { return proto.Equal(old, k) })
	next.partitions = replaced(t.partitions, fresh.partitions,
		func(old, p *clusterpb.Partition) bool { return olderEpoch(p, old) || proto.Equal(old, p) })
	next.members = membersLike(t, next.partitions)
	return &next
}

// replaced returns old with the keys and values of fresh, but with the old value where keep says
// so.
func replaced[K any, V comparable](old, fresh tree.Tree[K, V], keep func(old, new V) bool,
) tree.Tree[K, V] {
	next := old.Edit()
	tree.Diff(old, fresh, func(c tree.Change[K, V]) bool {
		switch {
		case !c.Has:
			next.Delete(c.Key)
		case !c.Had || !keep(c.Old, c.New):
			next.Set(c.Key, c.New)
		}
		return true
	})
	return next.Tree()
}

// Diff returns the update that leads from one table to a later one, at a cost in proportion to the
// changes: a follower of the table keeps the last one that it saw, and needs no queue.
func Diff(from, to *Table) *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Cluster: to.Cluster, Revision: to.Revision}
	u.Nodes, u.RemovedNodes = changed(from.nodes, to.nodes)
	u.Keyspaces, u.RemovedKeyspaces = changed(from.keyspaces, to.keyspaces)
	u.Partitions, u.RemovedPartitions = changed(from.partitions, to.partitions)
	return u
}

// changed returns the difference between two versions.
func changed[K any, V comparable](from, to tree.Tree[K, V]) (now []V, gone []K) {
	tree.Diff(from, to, func(c tree.Change[K, V]) bool {
		if c.Has {
			now = append(now, c.New)
		} else {
			gone = append(gone, c.Key)
		}
		return true
	})
	return now, gone
}

// Current holds the present table. One goroutine publishes.
type Current struct{ pointer atomic.Pointer[Table] }

// NewCurrent returns a Current that holds a table.
func NewCurrent(t *Table) *Current {
	c := &Current{}
	c.pointer.Store(t)
	return c
}

// Load returns the present table.
func (c *Current) Load() *Table { return c.pointer.Load() }

// Publish makes a table the present one.
func (c *Current) Publish(next *Table) {
	old := c.pointer.Swap(next)
	close(old.changed)
}

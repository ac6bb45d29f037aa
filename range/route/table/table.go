package table

import (
	"bytes"
	"cmp"
	"math"
	"strings"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/tree"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Table is one immutable picture of the cluster: keyspaces, their partitions, nodes. Tables that
// follow each other share what did not change.
type Table struct {
	// Cluster is the cluster's id.
	Cluster uint64
	// Revision is the core's revision that this picture has reached.
	Revision uint64

	// names has the keyspaces that are not being dropped.
	names tree.Tree[named, *Keyspace]
	ids   tree.Tree[keys.KeyspaceID, *Keyspace]
	nodes map[keys.NodeID]*clusterpb.Node
	// youngest is the highest id of a keyspace that any table of this sender has had. Ids are given
	// in ascending order, and once.
	youngest keys.KeyspaceID
	// changed is closed when a newer table is published.
	changed chan struct{}
}

// named orders keyspaces by name, and those that have had the same name by age.
type named struct {
	name string
	id   keys.KeyspaceID
}

func compareNamed(a, b named) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}

func newTable() *Table {
	return &Table{
		names:   tree.New[named, *Keyspace](compareNamed),
		ids:     tree.NewOrdered[keys.KeyspaceID, *Keyspace](),
		changed: make(chan struct{}),
	}
}

// Keyspace is a keyspace with its partitions in key order. Immutable.
type Keyspace struct {
	ID keys.KeyspaceID
	// Info is not to be changed.
	Info *clusterpb.Keyspace

	shown    tree.Tree[place, *Partition]
	complete bool
	// followed: the table stream tells of the partitions. Otherwise some may be known, from answers.
	followed bool
	// list is what Partitions returns, once it was asked for.
	list atomic.Pointer[[]*Partition]
}

// Partition is a descriptor with what the sender made of it. Immutable but for the leader hint.
type Partition struct {
	ID         keys.PartitionID
	Keyspace   keys.KeyspaceID
	Generation uint64
	// Hash is the number of a hash partition.
	Hash uint32
	// Span is in user keys: of a hash partition those with its number that lie in it. It is less than
	// what the descriptor says where only another partition is known to be newer (layout.go).
	Span keys.Span
	// Descriptor is not to be changed.
	Descriptor *clusterpb.Partition

	// Voters are the nodes that hold a voting replica, and Hints what is known of which one leads.
	Voters []*nodes.Node
	Hints  *Hints
	// clip says which part of the descriptor is shown; nil: all of it.
	clip *clip
}

// Boundless reports whether the partition stands for those of its keyspace, or hash number, whose
// bounds the client may not see.
func (p *Partition) Boundless() bool { return p.Generation == 0 }

// Clipped reports whether the partition is shown in part: what its descriptor says of the rest is
// known to be old.
func (p *Partition) Clipped() bool { return p.clip != nil }

// Survives reports whether a quorum of the partition's voters is left without so many of them.
func (p *Partition) Survives(lost int) bool { return len(p.Voters)-lost >= len(p.Voters)/2+1 }

// Leader is a leader hint as others see it.
type Leader struct {
	Node keys.NodeID
	Term uint64
}

// Leader returns the partition's leader hint; ok is false when there is no usable one.
func (p *Partition) Leader() (Leader, bool) {
	l := p.Hints.Current()
	if !l.Usable() {
		return Leader{}, false
	}
	return Leader{Node: l.Node.ID, Term: l.Term}, true
}

// Changed is closed when a newer table is published.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// Nodes are the nodes of the cluster, by id. The map is not to be changed.
func (t *Table) Nodes() map[keys.NodeID]*clusterpb.Node { return t.nodes }

// KeyspaceByName finds a keyspace that is not being dropped; nil if there is none. A name that was
// dropped and given again belongs to the younger keyspace.
func (t *Table) KeyspaceByName(name string) *Keyspace {
	k, ok := t.names.Floor(named{name, math.MaxUint32})
	if !ok || k.Info.Name != name {
		return nil
	}
	return k
}

// KeyspaceByID finds a keyspace; nil if there is none.
func (t *Table) KeyspaceByID(id keys.KeyspaceID) *Keyspace {
	k, _ := t.ids.Get(id)
	return k
}

// Dropped reports whether a keyspace existed and does not any more. It is false for one of which
// nothing is known, which may be too young for this table.
func (t *Table) Dropped(id keys.KeyspaceID) bool {
	return t.KeyspaceByID(id) == nil && id <= t.youngest
}

// Hashed reports whether the keyspace is partitioned by hash.
func (k *Keyspace) Hashed() bool { return k.Info.Partitioning == clusterpb.Partitioning_HASH }

// Partitions returns the partitions in order. The slice is not to be changed. The first call for a
// version of the keyspace costs in proportion to their number.
func (k *Keyspace) Partitions() []*Partition {
	if list := k.list.Load(); list != nil {
		return *list
	}
	list := k.shown.Values()
	k.list.Store(&list)
	return list
}

// Len is how many partitions there are in the table.
func (k *Keyspace) Len() int { return k.shown.Len() }

// Followed reports whether the table is told of the keyspace's partitions. It is, soon after they
// were asked for (Sender.Subscribe).
func (k *Keyspace) Followed() bool { return k.followed }

// Complete reports whether every key of the keyspace has a partition in the table. It is false as
// long as the partitions have not been asked for (Sender.Subscribe).
func (k *Keyspace) Complete() bool { return k.complete }

// ByKey finds the partition that holds a user key; nil if the table has a hole there.
func (k *Keyspace) ByKey(userKey []byte) *Partition {
	if !k.Hashed() {
		return k.at(place{key: userKey})
	}
	if k.Info.HashPartitions == 0 {
		return nil
	}
	return k.ByHash(keys.HashPartition(userKey, k.Info.HashPartitions), userKey)
}

// at finds the partition that holds a place.
func (k *Keyspace) at(at place) *Partition {
	p, ok := k.shown.Floor(at)
	if !ok || p.Hash != at.hash || !p.Span.Contains(at.key) {
		return nil
	}
	return p
}

// listed is how many partitions a keyspace may have for ByHash to make a list of them: each version
// of the keyspace has one of its own.
const listed = 4096

// ByHash finds, of the partitions of a hash number, the one that holds a user key; nil if the table
// lacks it.
func (k *Keyspace) ByHash(number uint32, userKey []byte) *Partition {
	if k.split() {
		return k.at(place{number, userKey})
	}
	list := k.list.Load()
	if list == nil && k.Len() <= listed {
		k.Partitions()
		list = k.list.Load()
	}
	if list != nil && int(number) < len(*list) {
		if p := (*list)[number]; p.Hash == number && p.Span.Contains(userKey) {
			return p
		}
	}
	return k.at(place{number, userKey})
}

// split says that there are more partitions than hash numbers.
func (k *Keyspace) split() bool { return k.Len() > int(k.Info.HashPartitions) }

// Before finds, of the partitions of a hash number, 0 in a range keyspace, the one that holds the
// keys just below end; an empty end is the end of all keys. nil if the table has a hole there.
func (k *Keyspace) Before(number uint32, end []byte) *Partition {
	at := place{number, end}
	if len(end) == 0 {
		at = place{hash: number + 1}
	}
	p, ok := k.shown.Below(at)
	if !ok || p.Hash != number ||
		len(p.Span.End) > 0 && (len(end) == 0 || bytes.Compare(p.Span.End, end) < 0) {
		return nil
	}
	return p
}

// Overlapping returns the partitions that hold keys of a span of user keys: in the order of their
// hash numbers, those of one number in key order.
func (k *Keyspace) Overlapping(span keys.Span) (over []*Partition) {
	switch {
	case !k.Hashed():
		return k.overlapping(nil, 0, span)
	case k.complete && !k.split(), len(span.Start) == 0 && len(span.End) == 0:
		return k.Partitions()
	}
	for number := range k.Info.HashPartitions {
		over = k.overlapping(over, number, span)
	}
	return over
}

// overlapping appends the partitions of a hash number that hold keys of a span.
func (k *Keyspace) overlapping(over []*Partition, number uint32, span keys.Span) []*Partition {
	at := place{number, span.Start}
	if p, ok := k.shown.Below(at); ok && p.Hash == number &&
		(len(p.Span.End) == 0 || bytes.Compare(p.Span.End, span.Start) > 0) {
		over = append(over, p)
	}
	for o, p := range k.shown.From(at) {
		if o.hash != number || len(span.End) > 0 && bytes.Compare(o.key, span.End) >= 0 {
			break
		}
		over = append(over, p)
	}
	return over
}

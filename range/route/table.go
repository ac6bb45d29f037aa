package route

import (
	"bytes"
	"sort"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Table is one immutable picture of the cluster: keyspaces, their partitions, nodes.
type Table struct {
	// Cluster is the cluster's id.
	Cluster uint64
	// Revision is the core's revision that this picture has reached.
	Revision uint64

	names map[string]*Keyspace
	ids   map[keys.KeyspaceID]*Keyspace
	nodes map[keys.NodeID]*clusterpb.Node
	// youngest is the highest id of a keyspace that any table of this sender has had. Ids are given
	// in ascending order, and once.
	youngest keys.KeyspaceID
	// changed is closed when a newer table is published.
	changed chan struct{}
}

// Keyspace is a keyspace with its partitions in key order. Immutable.
type Keyspace struct {
	ID keys.KeyspaceID
	// Info is not to be changed.
	Info *clusterpb.Keyspace
	// partitions are sorted by internal start and do not overlap; there may be holes.
	partitions []*Partition
}

// Partition is a descriptor with what the sender made of it. Immutable but for the leader hint.
type Partition struct {
	ID         keys.PartitionID
	Keyspace   keys.KeyspaceID
	Generation uint64
	// Hash is the number of a hash partition.
	Hash uint32
	// Span is in user keys.
	Span keys.Span
	// Descriptor is not to be changed.
	Descriptor *clusterpb.Partition

	voters []*node
	hint   *leaderHint
}

// Changed is closed when a newer table is published.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// KeyspaceByName finds a keyspace that is not being dropped; nil if there is none.
func (t *Table) KeyspaceByName(name string) *Keyspace { return t.names[name] }

// KeyspaceByID finds a keyspace; nil if there is none.
func (t *Table) KeyspaceByID(id keys.KeyspaceID) *Keyspace { return t.ids[id] }

// Dropped reports whether a keyspace existed and does not any more. It is false for one of which
// nothing is known, which may be too young for this table.
func (t *Table) Dropped(id keys.KeyspaceID) bool { return t.ids[id] == nil && id <= t.youngest }

// Hashed reports whether the keyspace is partitioned by hash.
func (k *Keyspace) Hashed() bool { return k.Info.Partitioning == clusterpb.Partitioning_HASH }

// Partitions returns the partitions in order. The slice is not to be changed.
func (k *Keyspace) Partitions() []*Partition { return k.partitions }

// Complete reports whether every key of the keyspace has a partition in the table.
func (k *Keyspace) Complete() bool {
	if k.Hashed() {
		return len(k.partitions) == int(k.Info.HashPartitions)
	}
	var at []byte
	for i, p := range k.partitions {
		if !bytes.Equal(p.Span.Start, at) || (i > 0 && len(at) == 0) {
			return false
		}
		at = p.Span.End
	}
	return len(k.partitions) > 0 && len(at) == 0
}

// ByKey finds the partition that holds a user key; nil if the table has a hole there.
func (k *Keyspace) ByKey(userKey []byte) *Partition {
	if k.Hashed() {
		if k.Info.HashPartitions == 0 {
			return nil
		}
		return k.ByHash(keys.HashPartition(userKey, k.Info.HashPartitions))
	}
	i := sort.Search(len(k.partitions), func(i int) bool {
		return bytes.Compare(k.partitions[i].Span.Start, userKey) > 0
	})
	if i == 0 || !k.partitions[i-1].Span.Contains(userKey) {
		return nil
	}
	return k.partitions[i-1]
}

// ByHash finds a hash partition by its number; nil if the table lacks it.
func (k *Keyspace) ByHash(number uint32) *Partition {
	if i := int(number); i < len(k.partitions) && k.partitions[i].Hash == number {
		return k.partitions[i]
	}
	i := sort.Search(len(k.partitions), func(i int) bool { return k.partitions[i].Hash >= number })
	if i == len(k.partitions) || k.partitions[i].Hash != number {
		return nil
	}
	return k.partitions[i]
}

// Before finds the partition of a range keyspace that holds the keys just below end; an empty end
// is the end of the keyspace. nil if the table has a hole there.
func (k *Keyspace) Before(end []byte) *Partition {
	i := len(k.partitions)
	if len(end) > 0 {
		i = sort.Search(len(k.partitions), func(i int) bool {
			return bytes.Compare(k.partitions[i].Span.Start, end) >= 0
		})
	}
	if i == 0 {
		return nil
	}
	p := k.partitions[i-1]
	if len(p.Span.End) > 0 && (len(end) == 0 || bytes.Compare(p.Span.End, end) < 0) {
		return nil
	}
	return p
}

// Overlapping returns the partitions that hold keys of a span of user keys: all of them in a hash
// keyspace.
func (k *Keyspace) Overlapping(span keys.Span) []*Partition {
	if k.Hashed() {
		return k.partitions
	}
	low := sort.Search(len(k.partitions), func(i int) bool {
		end := k.partitions[i].Span.End
		return len(end) == 0 || bytes.Compare(end, span.Start) > 0
	})
	high := len(k.partitions)
	if len(span.End) > 0 {
		high = sort.Search(len(k.partitions), func(i int) bool {
			return bytes.Compare(k.partitions[i].Span.Start, span.End) >= 0
		})
	}
	if low >= high {
		return nil
	}
	return k.partitions[low:high]
}

// newerEpoch reports whether descriptor a is of a later epoch than b: span generation first, then
// membership.
func newerEpoch(a, b *clusterpb.Partition) bool {
	if a.Generation != b.Generation {
		return a.Generation > b.Generation
	}
	return a.Membership > b.Membership
}

// arrange sorts a keyspace's partitions and takes out those that a descriptor of a later generation
// has overtaken.
func arrange(partitions []*Partition) []*Partition {
	sort.Slice(partitions, func(i, j int) bool {
		a, b := partitions[i].Descriptor, partitions[j].Descriptor
		if c := bytes.Compare(a.Start, b.Start); c != 0 {
			return c < 0
		}
		return a.Generation < b.Generation
	})
	kept := partitions[:0]
next:
	for _, p := range partitions {
		for len(kept) > 0 {
			last := kept[len(kept)-1].Descriptor
			if bytes.Compare(last.End, p.Descriptor.Start) <= 0 {
				break
			}
			if last.Generation > p.Descriptor.Generation {
				continue next
			}
			kept = kept[:len(kept)-1]
		}
		kept = append(kept, p)
	}
	return kept
}

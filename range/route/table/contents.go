package table

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// contents is what a table is made from, by id.
type contents struct {
	nodes     map[keys.NodeID]*clusterpb.Node
	keyspaces map[keys.KeyspaceID]*clusterpb.Keyspace
	// partitions have no voters and no hint before the contents are in use.
	partitions map[keys.PartitionID]*Partition
	// layouts are made when the contents come into use, and follow partitions from there on.
	layouts map[keys.KeyspaceID]*layout
	// followed are the keyspaces of whose partitions the stream tells; all of them with followsAll.
	followed   map[keys.KeyspaceID]struct{}
	followsAll bool
	revision   uint64
	// leaders are kept only while a table is being gathered: hints for them exist once it is in use.
	leaders map[uint64]*clusterpb.Leader
}

func newContents() *contents {
	return &contents{
		nodes:      make(map[keys.NodeID]*clusterpb.Node),
		keyspaces:  make(map[keys.KeyspaceID]*clusterpb.Keyspace),
		partitions: make(map[keys.PartitionID]*Partition),
		layouts:    make(map[keys.KeyspaceID]*layout),
		followed:   make(map[keys.KeyspaceID]struct{}),
		leaders:    make(map[uint64]*clusterpb.Leader),
	}
}

// changes is what an update touched.
type changes struct {
	nodes     bool
	keyspaces map[keys.KeyspaceID]*keyspaceChanges
}

// keyspaceChanges are of one keyspace: the partitions that come, and those that go.
type keyspaceChanges struct {
	in, out []*Partition
	// dropped: the keyspace is gone.
	dropped bool
}

func (c *changes) keyspace(id keys.KeyspaceID) *keyspaceChanges {
	if c.keyspaces == nil {
		c.keyspaces = make(map[keys.KeyspaceID]*keyspaceChanges)
	}
	k := c.keyspaces[id]
	if k == nil {
		k = &keyspaceChanges{}
		c.keyspaces[id] = k
	}
	return k
}

// apply merges an update; leaders are not part of the contents. Descriptors that make no sense are
// left out and counted.
func (c *contents) apply(u *clusterpb.TableUpdate, touched *changes) (bad error) {
	for _, n := range u.Nodes {
		c.nodes[keys.NodeID(n.Id)] = n
		touched.nodes = true
	}
	for _, id := range u.RemovedNodes {
		delete(c.nodes, keys.NodeID(id))
		touched.nodes = true
	}
	for _, k := range u.Keyspaces {
		c.keyspaces[keys.KeyspaceID(k.Id)] = k
		touched.keyspace(keys.KeyspaceID(k.Id))
	}
	for _, id := range u.RemovedKeyspaces {
		delete(c.keyspaces, keys.KeyspaceID(id))
		delete(c.followed, keys.KeyspaceID(id))
		touched.keyspace(keys.KeyspaceID(id)).dropped = true
	}
	for _, id := range u.RemovedPartitions {
		// In a keyspace that stays, a merge has consumed it: what has consumed it takes its place.
		if p := c.partitions[keys.PartitionID(id)]; p != nil && !c.stays(p.Keyspace) {
			delete(c.partitions, p.ID)
			k := touched.keyspace(p.Keyspace)
			k.out = append(k.out, p)
		}
	}
	for _, p := range u.Partitions {
		if err := c.describe(p, touched); err != nil {
			bad = err
		}
	}
	for _, id := range u.Followed {
		c.followed[keys.KeyspaceID(id)] = struct{}{}
		touched.keyspace(keys.KeyspaceID(id))
	}
	if u.FollowsAll && !c.followsAll {
		c.followsAll = true
		for id := range c.keyspaces {
			touched.keyspace(id)
		}
	}
	c.revision = max(c.revision, u.Revision)
	return bad
}

// stays says that a keyspace is there, and is not being dropped.
func (c *contents) stays(id keys.KeyspaceID) bool {
	k := c.keyspaces[id]
	return k != nil && k.State != clusterpb.KeyspaceState_DROPPING
}

// tellsAllOf says that a descriptor of the same partition tells nothing more. One of an earlier
// epoch and a larger span may tell of keys of which nothing else is known.
func (p *Partition) tellsAllOf(d *clusterpb.Partition) bool {
	return !newerEpoch(d, p.Descriptor) &&
		keys.PartitionSpan(p.Descriptor).ContainsSpan(keys.PartitionSpan(d))
}

// describe takes a descriptor in, unless what it tells is known.
func (c *contents) describe(d *clusterpb.Partition, touched *changes) error {
	if err := keys.ValidatePartition(d); err != nil {
		return err
	}
	p := newPartition(d)
	old := c.partitions[p.ID]
	if old != nil {
		if old.tellsAllOf(d) {
			return nil
		}
		p.Hints = old.Hints
	}
	if old == nil || newerEpoch(d, old.Descriptor) {
		c.partitions[p.ID] = p
	}
	k := touched.keyspace(p.Keyspace)
	k.in = append(k.in, p)
	return nil
}

// newPartition is the sender's view of a descriptor.
func newPartition(d *clusterpb.Partition) *Partition {
	return &Partition{ID: keys.PartitionID(d.Id), Keyspace: keys.KeyspaceID(d.Keyspace),
		Generation: d.Generation, Hash: d.Hash, Span: keys.PartitionUserSpan(d), Descriptor: d}
}

// everything touches all there is.
func (c *contents) everything() *changes {
	all := &changes{nodes: true}
	for id := range c.keyspaces {
		all.keyspace(id)
	}
	for _, p := range c.partitions {
		k := all.keyspace(p.Keyspace)
		k.in = append(k.in, p)
	}
	return all
}

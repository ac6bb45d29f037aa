package route

import (
	"maps"
	"slices"
	"time"

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
		p.hint = old.hint
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

// publishLocked makes a new table, on top of another one, of what an update of the contents has
// touched, and wakes the callers that wait for one. It costs in proportion to that.
func (s *Sender) publishLocked(on *Table, touched *changes) {
	old := s.table.Load()
	t := &Table{
		Cluster:  s.mu.cluster,
		Revision: s.mu.contents.revision,
		youngest: old.youngest,
		nodes:    on.nodes,
		changed:  make(chan struct{}),
	}
	if touched.nodes {
		t.nodes = maps.Clone(s.mu.contents.nodes)
		s.nodes.Update(t.nodes)
	}
	ids, names := on.ids.Edit(), on.names.Edit()
	for id, change := range touched.keyspaces {
		l := s.layoutLocked(id, change)
		if before, ok := ids.View().Get(id); ok {
			names.Delete(named{before.Info.Name, id})
		}
		info := s.mu.contents.keyspaces[id]
		if info == nil {
			ids.Delete(id)
			if l.shown.Len() == 0 {
				delete(s.mu.contents.layouts, id)
			}
			continue
		}
		_, followed := s.mu.contents.followed[id]
		k := l.keyspace(id, info, followed || s.mu.contents.followsAll)
		ids.Set(id, k)
		t.youngest = max(t.youngest, id)
		if info.State != clusterpb.KeyspaceState_DROPPING && !keys.IsHidden(info.Name) {
			names.Set(named{info.Name, id}, k)
		}
	}
	t.ids, t.names = ids.Tree(), names.Tree()
	s.table.Store(t)
	close(old.changed)
}

// layoutLocked brings the layout of a keyspace up to date. What it does not show any more is
// forgotten.
func (s *Sender) layoutLocked(id keys.KeyspaceID, change *keyspaceChanges) *layout {
	c := s.mu.contents
	l := c.layouts[id]
	if l == nil {
		l = newLayout()
		c.layouts[id] = l
	}
	if change.dropped && c.keyspaces[id] == nil {
		for _, p := range l.shown.Values() {
			delete(c.partitions, p.ID)
		}
		l = newLayout()
		c.layouts[id] = l
		for _, p := range change.in {
			delete(c.partitions, p.ID)
		}
		return l
	}
	if len(change.in)+len(change.out) == 0 {
		return l
	}
	for _, p := range change.in {
		s.equipLocked(p)
	}
	for _, p := range l.change(change.in, change.out) {
		if c.partitions[p.ID] == p {
			delete(c.partitions, p.ID)
		}
	}
	return l
}

// equipLocked gives a partition its hint and its voters, before it is shown.
func (s *Sender) equipLocked(p *Partition) {
	p.voters = p.voters[:0]
	for _, r := range p.Descriptor.Replicas {
		if r.Role != clusterpb.ReplicaRole_LEARNER {
			p.voters = append(p.voters, s.nodeLocked(keys.NodeID(r.Node)))
		}
	}
	if p.hint != nil {
		return
	}
	p.hint = newLeaderHint()
	// A partition that has split off is led at first where the one is that it was a part of.
	if from := s.mu.contents.partitions[keys.PartitionID(p.Descriptor.SplitFrom)]; from != nil &&
		from.hint != nil {
		if l := from.hint.leader.Load(); l != nil {
			p.hint.position = max(0, slices.Index(p.voters, l.node))
		}
	}
}

// learnLeaders takes hints in.
func (s *Sender) learnLeaders(leaders []*clusterpb.Leader) {
	if len(leaders) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, l := range leaders {
		p := s.mu.contents.partitions[keys.PartitionID(l.Partition)]
		if p != nil && p.hint != nil && l.Node != 0 && l.Term != 0 {
			p.hint.learn(s.nodeLocked(keys.NodeID(l.Node)), l.Term, nil, now)
		}
	}
}

// learnPartitions takes in descriptors that came with an answer, and reports whether they changed
// anything.
func (s *Sender) learnPartitions(partitions []*clusterpb.Partition) bool {
	if len(partitions) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var touched changes
	for _, p := range partitions {
		if s.mu.contents.keyspaces[keys.KeyspaceID(p.Keyspace)] == nil {
			continue // dropped meanwhile, or not known yet: the table stream will tell
		}
		if err := s.mu.contents.describe(p, &touched); err != nil {
			s.log.Warn("a node sent a descriptor that makes no sense; it is ignored", "error", err)
		}
	}
	if len(touched.keyspaces) == 0 {
		return false
	}
	s.publishLocked(s.table.Load(), &touched)
	for id, change := range touched.keyspaces {
		if l := s.mu.contents.layouts[id]; l != nil && slices.ContainsFunc(change.in, l.shows) {
			return true
		}
	}
	return false
}

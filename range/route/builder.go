package route

import (
	"maps"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// contents is what a table is made from, by id.
type contents struct {
	nodes      map[keys.NodeID]*clusterpb.Node
	keyspaces  map[keys.KeyspaceID]*clusterpb.Keyspace
	partitions map[keys.PartitionID]*clusterpb.Partition
	revision   uint64
	// leaders are kept only while a table is being gathered: hints for them exist once it is in use.
	leaders map[uint64]*clusterpb.Leader
}

func newContents() *contents {
	return &contents{
		nodes:      make(map[keys.NodeID]*clusterpb.Node),
		keyspaces:  make(map[keys.KeyspaceID]*clusterpb.Keyspace),
		partitions: make(map[keys.PartitionID]*clusterpb.Partition),
		leaders:    make(map[uint64]*clusterpb.Leader),
	}
}

// changes is what an update touched.
type changes struct {
	nodes     bool
	keyspaces map[keys.KeyspaceID]bool
}

func (c *changes) keyspace(id keys.KeyspaceID) {
	if c.keyspaces == nil {
		c.keyspaces = make(map[keys.KeyspaceID]bool)
	}
	c.keyspaces[id] = true
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
		touched.keyspace(keys.KeyspaceID(id))
	}
	for _, id := range u.RemovedPartitions {
		if p := c.partitions[keys.PartitionID(id)]; p != nil {
			delete(c.partitions, keys.PartitionID(id))
			touched.keyspace(keys.KeyspaceID(p.Keyspace))
		}
	}
	for _, p := range u.Partitions {
		if err := c.describe(p, touched); err != nil {
			bad = err
		}
	}
	c.revision = max(c.revision, u.Revision)
	return bad
}

// describe takes a descriptor in, unless one of the same or a later epoch is there.
func (c *contents) describe(p *clusterpb.Partition, touched *changes) error {
	if err := keys.ValidatePartition(p); err != nil {
		return err
	}
	if old := c.partitions[keys.PartitionID(p.Id)]; old != nil && !newerEpoch(p, old) {
		return nil
	}
	c.partitions[keys.PartitionID(p.Id)] = p
	touched.keyspace(keys.KeyspaceID(p.Keyspace))
	return nil
}

// publishLocked makes a new table from the contents and wakes the callers that wait for one.
// Keyspaces that were not touched are taken over from the table before; all of them are made anew
// if touched is nil.
func (s *Sender) publishLocked(touched *changes) {
	old := s.table.Load()
	t := &Table{
		Cluster:  s.mu.cluster,
		Revision: s.mu.contents.revision,
		youngest: old.youngest,
		ids:      make(map[keys.KeyspaceID]*Keyspace, len(s.mu.contents.keyspaces)),
		names:    make(map[string]*Keyspace, len(s.mu.contents.keyspaces)),
		nodes:    old.nodes,
		changed:  make(chan struct{}),
	}
	if touched == nil || touched.nodes {
		t.nodes = maps.Clone(s.mu.contents.nodes)
		s.updateAddressesLocked()
	}
	byKeyspace := make(map[keys.KeyspaceID][]*Partition)
	for id, p := range s.mu.contents.partitions {
		ks := keys.KeyspaceID(p.Keyspace)
		if touched == nil || touched.keyspaces[ks] {
			byKeyspace[ks] = append(byKeyspace[ks], s.partitionLocked(id, p))
		}
	}
	for id, info := range s.mu.contents.keyspaces {
		k := old.ids[id]
		if k == nil || touched == nil || touched.keyspaces[id] {
			k = &Keyspace{ID: id, Info: info, partitions: arrange(byKeyspace[id])}
		}
		t.ids[id] = k
		t.youngest = max(t.youngest, id)
		if info.State == clusterpb.KeyspaceState_DROPPING {
			continue
		}
		// A name that was dropped and given again belongs to the younger keyspace.
		if other := t.names[info.Name]; other == nil || other.ID < id {
			t.names[info.Name] = k
		}
	}
	s.forgetHintsLocked()
	s.table.Store(t)
	close(old.changed)
}

// partitionLocked makes the sender's view of a descriptor, or takes over the one there is.
func (s *Sender) partitionLocked(id keys.PartitionID, d *clusterpb.Partition) *Partition {
	c := s.mu.hints[id]
	if c == nil {
		c = newLeaderHint()
		s.mu.hints[id] = c
	}
	p := &Partition{
		ID:         id,
		Keyspace:   keys.KeyspaceID(d.Keyspace),
		Generation: d.Generation,
		Hash:       d.Hash,
		Span:       keys.PartitionUserSpan(d),
		Descriptor: d,
		hint:       c,
	}
	for _, r := range d.Replicas {
		if r.Role != clusterpb.ReplicaRole_LEARNER {
			p.voters = append(p.voters, s.nodeLocked(keys.NodeID(r.Node)))
		}
	}
	return p
}

// forgetHintsLocked drops the hints of partitions that are gone.
func (s *Sender) forgetHintsLocked() {
	if len(s.mu.hints) == len(s.mu.contents.partitions) {
		return
	}
	for id := range s.mu.hints {
		if s.mu.contents.partitions[id] == nil {
			delete(s.mu.hints, id)
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
		if c := s.mu.hints[keys.PartitionID(l.Partition)]; c != nil && l.Node != 0 && l.Term != 0 {
			c.learn(s.nodeLocked(keys.NodeID(l.Node)), l.Term, nil, now)
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
	s.publishLocked(&touched)
	return true
}

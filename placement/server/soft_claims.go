package server

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// maxPieces bounds the partitions that one report may say to have split off.
	maxPieces = 100
	// incompleteFor is for how long a report of a split or merge is kept of which a part is missing.
	incompleteFor = 30 * time.Second
)

// claim is what the leader of a partition says of its descriptor, which the table may lack.
type claim struct {
	descriptor *clusterpb.Partition
	// splitOff are the partitions that it says to have split off.
	splitOff []*clusterpb.Partition
	// at is since when the descriptor is claimed; lacks what the table waits for, in words.
	at    time.Time
	lacks string
}

// claimLocked keeps a descriptor that was reported. One that is repeated is as old as it was.
func (s *soft) claimLocked(d *clusterpb.Partition, splitOff []*clusterpb.Partition) {
	id := keys.PartitionID(d.Id)
	c := &claim{descriptor: d, splitOff: splitOff, at: time.Now()}
	if before := s.mu.described[id]; before != nil && epochOf(before.descriptor) == epochOf(d) {
		c.at, c.lacks = before.at, before.lacks
	}
	s.mu.described[id] = c
}

// newest is the later one of a descriptor of the table and of what was reported since.
func (s *soft) newest(id keys.PartitionID, d *clusterpb.Partition) *clusterpb.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.described[id]; c != nil && newer(c.descriptor, d) {
		return c.descriptor
	}
	return d
}

// reported are the descriptors that may be newer than the table's, by partition.
func (s *soft) reported() []claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]claim, 0, len(s.mu.described))
	for c := range maps.Values(s.mu.described) {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b claim) int {
		return cmp.Compare(a.descriptor.Id, b.descriptor.Id)
	})
	return all
}

// inTable takes note of a descriptor that the table has.
func (s *soft) inTable(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tabled[keys.PartitionID(d.Id)] = epochOf(d)
	s.refuseLocked(d)
}

// refuse forgets a descriptor that cannot be.
func (s *soft) refuse(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuseLocked(d)
}

func (s *soft) refuseLocked(d *clusterpb.Partition) {
	if c := s.mu.described[keys.PartitionID(d.Id)]; c != nil && c.descriptor == d {
		delete(s.mu.described, keys.PartitionID(d.Id))
	}
}

// lacks takes note of what is missing of a report; false: that was noted before.
func (s *soft) lacks(d *clusterpb.Partition, what string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.described[keys.PartitionID(d.Id)]
	if c == nil || c.descriptor != d || c.lacks == what {
		return false
	}
	c.lacks = what
	return true
}

// lack is what is missing of the report of a partition; empty: nothing.
func (s *soft) lack(id keys.PartitionID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.described[id]; c != nil {
		return c.lacks
	}
	return ""
}

// ask has the nodes of a partition's replicas report all that they lead.
func (s *soft) ask(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askLocked(d)
}

func (s *soft) askLocked(d *clusterpb.Partition) {
	for _, r := range d.Replicas {
		if n := s.mu.nodes[keys.NodeID(r.Node)]; n != nil {
			n.complete = false
		}
	}
}

package reports

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
)

// Claim is what the leader of a partition reports of its descriptor, which the table may lack.
type Claim struct {
	Descriptor *clusterpb.Partition
	// SplitOff are the partitions that it says to have split off.
	SplitOff []*clusterpb.Partition
	// at is since when the descriptor is claimed; lacks what the table waits for, in words.
	At    time.Time
	lacks string
}

// claimLocked keeps a descriptor that was reported. A repeated report does not renew its time.
func (s *Reports) claimLocked(d *clusterpb.Partition, splitOff []*clusterpb.Partition) {
	id := keys.PartitionID(d.Id)
	c := &Claim{Descriptor: d, SplitOff: splitOff, At: time.Now()}
	if before := s.mu.described[id]; before != nil && epochOf(before.Descriptor) == epochOf(d) {
		c.At, c.lacks = before.At, before.lacks
	}
	s.mu.described[id] = c
}

// Newest returns the later of a descriptor of the table and of the reported one.
func (s *Reports) Newest(id keys.PartitionID, d *clusterpb.Partition) *clusterpb.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.described[id]; c != nil && Newer(c.Descriptor, d) {
		return c.Descriptor
	}
	return d
}

// Claims are the descriptors that may be newer than the table's, by partition.
func (s *Reports) Claims() []Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Claim, 0, len(s.mu.described))
	for c := range maps.Values(s.mu.described) {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Claim) int {
		return cmp.Compare(a.Descriptor.Id, b.Descriptor.Id)
	})
	return all
}

// InTable takes note of a descriptor that the table has.
func (s *Reports) InTable(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tabled[keys.PartitionID(d.Id)] = epochOf(d)
	s.refuseLocked(d)
}

// Refuse forgets a descriptor that cannot be.
func (s *Reports) Refuse(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuseLocked(d)
}

func (s *Reports) refuseLocked(d *clusterpb.Partition) {
	if c := s.mu.described[keys.PartitionID(d.Id)]; c != nil && c.Descriptor == d {
		delete(s.mu.described, keys.PartitionID(d.Id))
	}
}

// Lacks notes what is missing in a report; false: that was noted before.
func (s *Reports) Lacks(d *clusterpb.Partition, what string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.described[keys.PartitionID(d.Id)]
	if c == nil || c.Descriptor != d || c.lacks == what {
		return false
	}
	c.lacks = what
	return true
}

// Lack returns what is missing in the report of a partition; empty: nothing.
func (s *Reports) Lack(id keys.PartitionID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.described[id]; c != nil {
		return c.lacks
	}
	return ""
}

// Ask has the nodes of a partition's replicas report all that they lead.
func (s *Reports) Ask(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askLocked(d)
}

func (s *Reports) askLocked(d *clusterpb.Partition) {
	for _, r := range d.Replicas {
		if n := s.mu.nodes[keys.NodeID(r.Node)]; n != nil {
			n.complete = false
		}
	}
}

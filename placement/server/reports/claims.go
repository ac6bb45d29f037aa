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
	// maxPieces limits the partitions that one report may list as split off.
	maxPieces = 100
)

// Claim is a descriptor that the leader of a partition reports and that the table may lack.
type Claim struct {
	Descriptor *clusterpb.Partition
	// SplitOff are the partitions that have split off according to the report.
	SplitOff []*clusterpb.Partition
	// At is the time of the first report of the descriptor. lacks says in words what is missing before
	// the table can have it.
	At    time.Time
	lacks string
}

// claimLocked stores a reported descriptor. A repeated report does not change the time of the first
// one.
func (s *Reports) claimLocked(d *clusterpb.Partition, splitOff []*clusterpb.Partition) {
	id := keys.PartitionID(d.Id)
	c := &Claim{Descriptor: d, SplitOff: splitOff, At: time.Now()}
	if before := s.mu.described[id]; before != nil && epochOf(before.Descriptor) == epochOf(d) {
		c.At, c.lacks = before.At, before.lacks
	}
	s.mu.described[id] = c
}

// Newest returns the later of the table's descriptor and the reported descriptor.
func (s *Reports) Newest(id keys.PartitionID, d *clusterpb.Partition) *clusterpb.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.described[id]; c != nil && Newer(c.Descriptor, d) {
		return c.Descriptor
	}
	return d
}

// Claims returns the descriptors that may be newer than the table's, in the order of their
// partitions.
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

// InTable records that the table has a descriptor.
func (s *Reports) InTable(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tabled[keys.PartitionID(d.Id)] = epochOf(d)
	s.refuseLocked(d)
}

// Refuse drops a descriptor that is not possible.
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

// Lacks records what is missing in a report. It returns false if that was recorded before.
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

// Lack returns what is missing in the report of a partition. It is empty if nothing is missing.
func (s *Reports) Lack(id keys.PartitionID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.described[id]; c != nil {
		return c.lacks
	}
	return ""
}

// Ask asks the nodes of a partition's replicas to report all partitions that they lead.
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

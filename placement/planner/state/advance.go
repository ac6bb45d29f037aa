package state

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Advance brings the State to the time of a step. It judges the nodes anew, takes the operators
// that are in flight then, and the reports of disks since the last step.
func (s *State) Advance(now time.Time, inFlight []planner.InFlight) {
	last := s.now
	s.now = now
	s.judge()
	s.age(last)
	s.setInFlight(inFlight)
	s.weigh()
	if invariants.Enabled && len(s.Partitions) <= 16*invariants.Small && advanced.Due(8) {
		checkInvariantSums(s)
	}
}

// advanced counts steps, for checkInvariantSums.
var advanced invariants.Every

// checkInvariantSums checks the sums of all nodes against the records of the partitions and the
// operators in flight.
func checkInvariantSums(s *State) {
	nodes := make([]Node, len(s.Nodes))
	replicas, bytes := make([]int, len(s.Nodes)), make([]int64, len(s.Keyspaces))
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if p.ID == 0 {
			continue
		}
		accountOn(s, nodes, p, 1)
		bytes[p.Keyspace] += p.Bytes
		for _, r := range s.Replicas(p) {
			replicas[r.Node]++
		}
	}
	for i := range s.list {
		if f := &s.list[i]; !f.gone {
			projectOn(s, nodes, f, 1)
		}
	}
	for i := range s.Nodes {
		n, want := &s.Nodes[i], &nodes[i]
		invariants.Check(n.Sum == want.Sum && n.Pending == want.Pending,
			"the sums of node %s are %v, with %d bytes pending, and should be %v, with %d", n.Told.ID,
			n.Sum, n.Pending, want.Sum, want.Pending)
		invariants.Check(len(n.Partitions) == replicas[i],
			"node %s has a list of %d partitions, and %d have a replica there", n.Told.ID,
			len(n.Partitions), replicas[i])
	}
	for i := range s.Keyspaces {
		k := &s.Keyspaces[i]
		invariants.Check(k.bytes == bytes[i], "keyspace %s has %d bytes, and its partitions have %d",
			k.Wants.ID, k.bytes, bytes[i])
	}
}

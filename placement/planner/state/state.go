package state

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// State is everything that the planner knows, in arrays of records. Indices into the arrays take
// the place of ids and pointers, so that a partition takes some 200 bytes in all. The sums of each
// node are kept up to date with every change. All sums are of integers, so that they do not depend
// on the order of the changes.
//
// INVARIANT: the rooms above read the arrays and the records; only the methods of State change
// them.
//
// A State is not safe for use by several goroutines.
type State struct {
	settings planner.Settings
	// now is the time of the last step.
	now time.Time

	Nodes     []Node
	nodeIndex map[keys.NodeID]uint16
	locations

	Keyspaces     []Keyspace
	keyspaceSlots slots[keys.KeyspaceID, uint16]

	// Partitions has records of ID 0 at the indices that are free.
	Partitions     []Partition
	partitionSlots slots[keys.PartitionID, uint32]
	replicas       arena
	growths

	inFlight
	changes Changes
}

// New returns an empty State. Settings that are zero are set to their defaults.
func New(settings planner.Settings) (*State, error) {
	s := &State{
		nodeIndex:      map[keys.NodeID]uint16{},
		locations:      newLocations(),
		keyspaceSlots:  newSlots[keys.KeyspaceID, uint16](),
		partitionSlots: newSlots[keys.PartitionID, uint32](),
		growths:        growths{merges: map[uint32]Merge{}, tails: map[uint32]struct{}{}},
		inFlight:       inFlight{of: map[uint32]int{}},
	}
	return s, s.SetSettings(settings)
}

// Settings returns the settings, complete. They are changed by SetSettings only.
func (s *State) Settings() *planner.Settings { return &s.settings }

// Now is the time of the last step.
func (s *State) Now() time.Time { return s.now }

// SetSettings changes the settings. Every partition is listed as changed, except if only Paused
// changed.
func (s *State) SetSettings(settings planner.Settings) error {
	settings.EnsureDefaults()
	if err := settings.Validate(); err != nil {
		return err
	}
	before := s.settings
	s.settings = settings
	if before.Paused = settings.Paused; before != settings {
		s.TouchAll()
	}
	return nil
}

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
	replicas := make([]int, len(s.Nodes))
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if p.ID == 0 {
			continue
		}
		accountOn(s, nodes, p, 1)
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
}

// NodeID returns the id of the node at an index; 0 for NoNode.
func (s *State) NodeID(n uint16) keys.NodeID {
	if n == NoNode {
		return 0
	}
	return s.Nodes[n].Told.ID
}

// NodeIndex returns the index of a node, NoNode if there is none with that id.
func (s *State) NodeIndex(id keys.NodeID) uint16 {
	if i, ok := s.nodeIndex[id]; ok && id != 0 {
		return i
	}
	return NoNode
}

// KeyspaceIndex returns the index of a keyspace.
func (s *State) KeyspaceIndex(id keys.KeyspaceID) (uint16, bool) {
	i, ok := s.keyspaceSlots.index[id]
	return i, ok
}

// PartitionIndex returns the index of a partition. No partition has the id 0.
func (s *State) PartitionIndex(id keys.PartitionID) (uint32, bool) {
	i, ok := s.partitionSlots.index[id]
	return i, ok
}

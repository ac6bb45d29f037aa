package state

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
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

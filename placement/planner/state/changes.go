package state

import "iter"

// Changes lists what has changed in a State, so that a step need look at that only.
type Changes struct {
	// Partitions holds, each once, the partitions that changed themselves, whose nodes or keyspace
	// changed, or of which time may make something else. A partition may have been removed since.
	Partitions []uint32
	// Removed holds the indices of partitions that were removed. An index may belong to another
	// partition by now.
	Removed []uint32
	// Reused: the index of a removed partition was given to another one.
	Reused bool
	// Nodes: some node can be given less or more than before.
	Nodes bool
	// Keyspaces: some keyspace wants something else than before.
	Keyspaces bool
	// FewerPlaces: fewer zones or regions are open than before, so that a partition may be spread as
	// well as possible that was not before.
	FewerPlaces bool
}

// TakeChanges returns what has changed since the last call. The caller has to go through the
// partitions with Settled before it asks for anything that depends on sums.
func (s *State) TakeChanges() Changes {
	out := s.changes
	s.changes = Changes{}
	return out
}

// Settled goes through the partitions of Changes. It settles each of them before its turn: the
// partition can be listed again, and the sums count the leader that can lead now. A step checks the
// partition in the same turn, so that it reads each record from memory once only.
func (s *State) Settled(changed []uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, i := range changed {
			p := &s.Partitions[i]
			p.changed = false
			if p.ID != 0 {
				s.settleLeader(i)
			}
			if !yield(i) {
				return
			}
		}
	}
}

// touch lists a partition as changed.
func (s *State) touch(i uint32) {
	if p := &s.Partitions[i]; !p.changed {
		p.changed = true
		s.changes.Partitions = append(s.changes.Partitions, i)
	}
}

// TouchAll lists every partition as changed.
func (s *State) TouchAll() {
	for i := range s.Partitions {
		if s.Partitions[i].ID != 0 {
			s.touch(uint32(i))
		}
	}
}

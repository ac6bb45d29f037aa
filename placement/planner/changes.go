package planner

// Changes says what has changed in a State since they were last taken.
type Changes struct {
	// Partitions holds each partition once that has changed itself, or whose nodes or keyspace have,
	// or of which the time alone may make something else. It may have been removed since.
	Partitions []uint32
	// Removed holds the indices of partitions that were removed. Another partition may have such an
	// index by now.
	Removed []uint32
	// Reused: the index of a partition that was removed was given to another one.
	Reused bool
	// Nodes: some node can be given less or more than before. Keyspaces: some keyspace wants
	// something else.
	Nodes, Keyspaces bool
	// FewerPlaces: fewer zones or regions are open than before.
	FewerPlaces bool
}

// takeChanges returns the changes since the last call.
func (s *State) takeChanges() Changes {
	out := s.changes
	s.changes = Changes{}
	for _, i := range out.Partitions {
		if p := &s.partitions[i]; p.changed {
			p.changed = false
			if p.id != 0 {
				s.settleLeader(i)
			}
		}
	}
	return out
}

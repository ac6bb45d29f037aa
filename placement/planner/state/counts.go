package state

import "github.com/tidemarkdb/tidemark/range/keys"

// ReplicasOn returns how many partitions have a replica on a node, by their descriptors.
func (s *State) ReplicasOn(id keys.NodeID) int { return len(s.on(id)) }

// BytesOn returns the bytes of the replicas on a node, by their descriptors.
func (s *State) BytesOn(id keys.NodeID) (bytes int64) {
	for _, i := range s.on(id) {
		bytes += s.Partitions[i].Bytes
	}
	return bytes
}

// BytesOf returns the bytes of a keyspace: of one replica of each of its partitions.
func (s *State) BytesOf(id keys.KeyspaceID) int64 {
	if i, ok := s.KeyspaceIndex(id); ok {
		return s.Keyspaces[i].bytes
	}
	return 0
}

// LeadersOn returns how many partitions a node leads.
func (s *State) LeadersOn(id keys.NodeID) (n int) {
	for _, i := range s.on(id) {
		if s.NodeID(s.Partitions[i].Leader) == id {
			n++
		}
	}
	return n
}

// on returns the partitions with a replica on a node; none if the node is not known.
func (s *State) on(id keys.NodeID) []uint32 {
	if i := s.NodeIndex(id); i != NoNode {
		return s.Nodes[i].Partitions
	}
	return nil
}

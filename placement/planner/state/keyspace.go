package state

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// maxKeyspaces is how many keyspaces a State can hold: an index of 16 bits, without NoNode's value.
const maxKeyspaces = 1<<16 - 1

// SetKeyspace adds a keyspace or changes it. If the keyspace changed, all its partitions are listed
// as changed.
func (s *State) SetKeyspace(k planner.Keyspace) error {
	if err := k.Validate(); err != nil {
		return err
	}
	k.EnsureDefaults()
	i, err := s.keyspaceAt(k.ID)
	if err != nil {
		return err
	}
	ks := &s.Keyspaces[i]
	before, known := ks.Wants, ks.Known
	ks.Wants, ks.Known = k, true
	ks.Masks, ks.Preferred = ks.Masks[:0], ks.Preferred[:0]
	for n := range s.Nodes {
		ks.match(s.Nodes, n)
	}
	if known && before.Replicas == k.Replicas && before.Rules.String() == k.Rules.String() &&
		before.Leaders.String() == k.Leaders.String() && before.SplitSize == k.SplitSize &&
		before.MergeSize == k.MergeSize && before.NoAuto == k.NoAuto {
		return nil
	}
	for j := range s.Partitions {
		if p := &s.Partitions[j]; p.ID != 0 && p.Keyspace == i {
			s.touch(uint32(j))
		}
	}
	s.changes.Keyspaces = true
	return nil
}

// RemoveKeyspace forgets a keyspace. Nothing is planned for partitions of the keyspace that are
// still there.
func (s *State) RemoveKeyspace(id keys.KeyspaceID) {
	if i, ok := s.KeyspaceIndex(id); ok {
		s.Keyspaces[i] = Keyspace{Wants: planner.Keyspace{ID: id},
			partitions: s.Keyspaces[i].partitions, bytes: s.Keyspaces[i].bytes}
		s.releaseKeyspace(i)
	}
}

// leaveKeyspace counts a partition out of its keyspace.
func (s *State) leaveKeyspace(i uint16) {
	s.Keyspaces[i].partitions--
	s.releaseKeyspace(i)
}

// releaseKeyspace frees the index of a keyspace that is not known and has no partition.
func (s *State) releaseKeyspace(i uint16) {
	ks := &s.Keyspaces[i]
	if ks.Known || ks.partitions > 0 || ks.Wants.ID == 0 {
		return
	}
	s.keyspaceSlots.release(ks.Wants.ID, i)
	*ks = Keyspace{}
}

// keyspaceAt returns the index of a keyspace, and adds a keyspace that is not known.
func (s *State) keyspaceAt(id keys.KeyspaceID) (uint16, error) {
	if i, ok := s.KeyspaceIndex(id); ok {
		return i, nil
	}
	if len(s.keyspaceSlots.index) >= maxKeyspaces {
		return 0, fmt.Errorf("more than %d keyspaces", maxKeyspaces)
	}
	i := s.keyspaceSlots.take(id, len(s.Keyspaces))
	if int(i) == len(s.Keyspaces) {
		s.Keyspaces = append(s.Keyspaces, Keyspace{})
	}
	s.Keyspaces[i] = Keyspace{Wants: planner.Keyspace{ID: id}}
	return i, nil
}

// match matches one node with the rules and the preference of the keyspace, and returns whether
// that changed what was known.
func (ks *Keyspace) match(nodes []Node, i int) (changed bool) {
	labels := nodes[i].Told.Labels()
	if len(ks.Wants.Rules) > 0 {
		ks.Masks = extended(ks.Masks, len(nodes))
		m := ks.Wants.Rules.Mask(labels)
		changed = ks.Masks[i] != m
		ks.Masks[i] = m
	}
	if len(ks.Wants.Leaders) > 0 {
		ks.Preferred = extended(ks.Preferred, len(nodes))
		m := ks.Wants.Leaders.Match(labels)
		changed = changed || ks.Preferred[i] != m
		ks.Preferred[i] = m
	}
	return changed
}

func extended[T any](list []T, n int) []T {
	for len(list) < n {
		var zero T
		list = append(list, zero)
	}
	return list
}

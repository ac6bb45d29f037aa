package state

import "github.com/tidemarkdb/tidemark/placement/planner/rules"

// arena holds the replicas of all partitions in one array. The replicas of a partition are one
// block of exactly their number. A block that is given back serves the next partition with as many
// replicas.
type arena struct {
	replicas []Replica
	unused   [rules.MaxReplicas + 1][]uint32
}

// take returns the index of the first replica of a block of n.
func (a *arena) take(n uint8) uint32 {
	if n == 0 {
		return 0
	}
	if free := a.unused[n]; len(free) > 0 {
		a.unused[n] = free[:len(free)-1]
		return free[len(free)-1]
	}
	first := uint32(len(a.replicas))
	for range n {
		a.replicas = append(a.replicas, Replica{})
	}
	return first
}

func (a *arena) free(first uint32, n uint8) {
	if n > 0 {
		a.unused[n] = append(a.unused[n], first)
	}
}

func (a *arena) block(first uint32, n uint8) []Replica {
	return a.replicas[first : first+uint32(n) : first+uint32(n)]
}

// slots gives every id of a set an index into an array. An index whose id was removed is given to
// another id.
type slots[ID comparable, Index uint16 | uint32] struct {
	index map[ID]Index
	free  []Index
}

func newSlots[ID comparable, Index uint16 | uint32]() slots[ID, Index] {
	return slots[ID, Index]{index: map[ID]Index{}}
}

// take gives an id that has no index a free index of an array of that length. If there is none, it
// gives the index behind the end, and the caller extends the array.
func (t *slots[ID, Index]) take(id ID, length int) Index {
	i := Index(length)
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	}
	t.index[id] = i
	return i
}

func (t *slots[ID, Index]) release(id ID, i Index) {
	delete(t.index, id)
	t.free = append(t.free, i)
}

package planner

// arena holds the replicas of all partitions, each partition's in one block of exactly their
// number. Blocks that are given back serve the next partition with as many replicas.
type arena struct {
	replicas []replica
	unused   [maxReplicas + 1][]uint32
}

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
		a.replicas = append(a.replicas, replica{})
	}
	return first
}

func (a *arena) free(first uint32, n uint8) {
	if n > 0 {
		a.unused[n] = append(a.unused[n], first)
	}
}

func (a *arena) block(first uint32, n uint8) []replica {
	return a.replicas[first : first+uint32(n) : first+uint32(n)]
}

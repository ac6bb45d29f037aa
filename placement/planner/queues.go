package planner

import (
	"cmp"
	"slices"
)

// queues hold the partitions that something is wrong with and that have no operator, by urgency
// and, within that, by id. They stay from step to step: a zone that is lost leaves hundreds of
// thousands waiting, of which a step can only look at some.
type queues struct {
	// sorted entries may be out of date: what counts is mark.urge.
	sorted [urgeNothing][]uint32
	fresh  [urgeNothing][]uint32
	length [urgeNothing]int
	// reused: the place of a partition that is gone was given to another since the last settle.
	reused bool
}

// put moves a partition to the queue of an urgency, or out of all of them. It is seen there after
// the next settle.
func (q *queues) put(s *State, i uint32, u urgency) {
	m := &s.marks[i]
	if m.urge == u {
		return
	}
	if m.urge != urgeNothing {
		q.length[m.urge]--
	}
	if m.urge = u; u != urgeNothing {
		q.length[u]++
		q.fresh[u] = append(q.fresh[u], i)
	}
}

// total is how many wait.
func (q *queues) total() int {
	sum := 0
	for _, n := range q.length {
		sum += n
	}
	return sum
}

// settle merges what is new, and drops what is out of date when there is much of it.
func (q *queues) settle(s *State) {
	byID := func(a, b uint32) int {
		return cmp.Compare(s.partitions[a].id, s.partitions[b].id)
	}
	for u := range urgeNothing {
		gone := func(i uint32) bool { return s.partitions[i].id == 0 || s.marks[i].urge != u }
		if q.reused {
			// An entry that is out of date may stand for another partition now, out of order.
			q.fresh[u] = append(q.fresh[u], q.sorted[u]...)
			q.sorted[u] = nil
		} else if len(q.fresh[u]) == 0 && len(q.sorted[u]) <= q.length[u]+q.length[u]/8 {
			continue
		}
		fresh := slices.DeleteFunc(q.fresh[u], gone)
		slices.SortFunc(fresh, byID)
		merged := make([]uint32, 0, q.length[u])
		for _, i := range q.sorted[u] {
			if gone(i) {
				continue
			}
			for len(fresh) > 0 && byID(fresh[0], i) < 0 {
				merged, fresh = append(merged, fresh[0]), fresh[1:]
			}
			merged = append(merged, i)
		}
		// The same may be in both, if it went and came back.
		q.sorted[u], q.fresh[u] = slices.Compact(append(merged, fresh...)), nil
	}
	q.reused = false
}

// turns are the entries of one queue, in the order in which they have their turn. Where there are
// more than a step can look at, they begin elsewhere as time goes by, so that some that find no
// place do not keep the others from theirs.
func (q *queues) turns(s *State, u urgency) (first, then []uint32) {
	list := q.sorted[u]
	if len(list) <= s.maxVisits() {
		return list, nil
	}
	from := uint64(s.now.Unix()) * 0x9e3779b97f4a7c15 % uint64(len(list))
	return list[from:], list[:from]
}

package propose

import (
	"cmp"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// queues hold the partitions with something wrong that have no operator, by urgency and, within an
// urgency, by id. Partitions stay in their queue from step to step: the loss of a zone leaves
// hundreds of thousands waiting, and a step can look at some only.
type queues struct {
	state *state.State
	// urgency holds the queue of each partition, by index; UrgencyNone: the partition is in none.
	urgency []objective.Urgency
	// sorted and fresh hold the entries of each queue; fresh those since the last settle. An entry
	// counts only if urgency still names the queue.
	sorted [objective.UrgencyNone][]uint32
	fresh  [objective.UrgencyNone][]uint32
	// length is how many partitions are in each queue.
	length [objective.UrgencyNone]int
	// reused: since the last settle, the index of a removed partition was given to another one.
	reused bool
}

// extend makes room for as many partitions as there are.
func (q *queues) extend() {
	for len(q.urgency) < len(q.state.Partitions) {
		q.urgency = append(q.urgency, objective.UrgencyNone)
	}
}

// put moves a partition to the queue of an urgency, or out of all queues. Its turn can come after
// the next settle.
func (q *queues) put(i uint32, u objective.Urgency) {
	before := q.urgency[i]
	if before == u {
		return
	}
	if before != objective.UrgencyNone {
		q.length[before]--
	}
	if q.urgency[i] = u; u != objective.UrgencyNone {
		q.length[u]++
		q.fresh[u] = append(q.fresh[u], i)
	}
}

// total is how many partitions wait.
func (q *queues) total() int {
	sum := 0
	for _, n := range q.length {
		sum += n
	}
	return sum
}

// settle merges the fresh entries of each queue into the sorted ones. It removes entries that no
// longer count, if there are fresh ones or many that do not count.
func (q *queues) settle() {
	byID := func(a, b uint32) int {
		return cmp.Compare(q.state.Partitions[a].ID, q.state.Partitions[b].ID)
	}
	for u := range objective.UrgencyNone {
		gone := func(i uint32) bool { return q.state.Partitions[i].ID == 0 || q.urgency[i] != u }
		if q.reused {
			// An old entry may mean another partition now, and be out of order.
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
		// A partition that left the queue and came back has two entries.
		q.sorted[u], q.fresh[u] = slices.Compact(append(merged, fresh...)), nil
	}
	q.reused = false
}

// turns returns the entries of a queue in the order of their turns, in two parts. If there are more
// than most, the order begins elsewhere in each second, so that partitions without a place cannot
// keep the others from their turns.
func (q *queues) turns(u objective.Urgency, most int) (first, then []uint32) {
	list := q.sorted[u]
	if len(list) <= most {
		return list, nil
	}
	from := uint64(q.state.Now().Unix()) * 0x9e3779b97f4a7c15 % uint64(len(list))
	return list[from:], list[:from]
}

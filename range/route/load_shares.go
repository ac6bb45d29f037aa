package route

import (
	"cmp"
	"slices"
)

// How replicas that are equally near share the reads.
//
// Each partition has its replica for this sender: they go around by the partitions' ids, which are
// consecutive when a keyspace is made, from a random beginning, so the reads of one sender are
// spread over the nodes, and those of a partition by many senders over its replicas. They go around
// by the sum of an id's digits, and not by the id: partitions are placed by going around, too. A
// replica that is asked about the same partitions again finds them in its caches, and an answer is
// seldom older than the one before.
//
// A sender that reads mostly one partition would have one node do all of it. So a node that owes
// far more answers than the others do is passed over, and the one that owes the fewest is asked:
// that is consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016).

const (
	// moreThanFair is how many more answers than its fair share a node may owe: a fourth, and
	// fewMore for what is chance.
	moreThanFair = 4
	fewMore      = 4
)

// share chooses one of the nodes, which it may sort. stay: the load does not count.
func (s *Sender) share(p *Partition, all []*node, stay bool) *node {
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(a.id, b.id) })
	n := all[(digits(uint64(p.ID), uint64(len(all)))+s.beginning)%uint64(len(all))]
	if stay || len(all) == 1 {
		return n
	}
	owed, least := int64(0), n
	for _, other := range all {
		owes := other.owed.Load()
		owed += owes
		if owes < least.owed.Load() {
			least = other
		}
	}
	if fair := owed / int64(len(all)); n.owed.Load() > fair+fair/moreThanFair+fewMore {
		return least
	}
	return n
}

// digits is the sum of the digits of a number, to a base. Modulo the base it goes around evenly
// among consecutive numbers, and among those of any stride (Thue and Morse; Gelfond, 1968).
func digits(x, base uint64) (sum uint64) {
	for ; x > 0; x /= max(base, 2) {
		sum += x % max(base, 2)
	}
	return sum
}

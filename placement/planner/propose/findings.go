package propose

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// mark is what the steps found out about a partition. It is a set of bits.
type mark uint8

const (
	// markFit: the partition is complete, with every replica live and sound. It may be moved for
	// balance.
	markFit mark = 1 << iota
	// markStuck: something is wrong or could be better, and nothing can be done.
	markStuck
	// markBlocked: what is stuck is wrong, and not only could be better.
	markBlocked
	// markListed: the list of stuck partitions has the partition, which may not be stuck any more.
	markListed
)

// look checks every partition that changed, and puts what is wrong into the queues.
func (pr *Proposer) look() {
	changes := pr.state.TakeChanges()
	pr.waiting.extend()
	pr.marks = append(pr.marks, make([]mark, len(pr.state.Partitions)-len(pr.marks))...)
	for _, i := range changes.Removed {
		pr.waiting.put(i, objective.UrgencyNone)
		pr.marks[i] &= markListed // the list still has the index
	}
	pr.waiting.reused = pr.waiting.reused || changes.Reused
	var again []uint32
	if changes.Nodes {
		for _, i := range pr.stuck {
			pr.marks[i] &^= markStuck | markListed | markBlocked
		}
		again = append(again, pr.stuck...)
		pr.stuck = pr.stuck[:0]
	}
	if changes.Nodes || changes.Keyspaces {
		pr.barren = [planner.Levels]time.Time{}
	}
	if changes.FewerPlaces {
		// A partition that waits to be spread better may be spread as well as possible by now.
		again = append(again, pr.waiting.sorted[objective.UrgencySpread]...)
	}
	for i := range pr.state.Settled(changes.Partitions) {
		pr.checkAgain(i)
	}
	for _, i := range again {
		pr.checkAgain(i)
	}
	pr.waiting.settle()
}

// checkAgain checks one partition. A partition with an operator in flight is checked when the
// operator has ended.
func (pr *Proposer) checkAgain(i uint32) {
	p, m := &pr.state.Partitions[i], &pr.marks[i]
	*m &^= markStuck | markBlocked
	if p.ID == 0 {
		return
	}
	urgency := objective.UrgencyNone
	if !p.InFlight {
		f, fit := pr.objective.Check(i)
		if *m &^= markFit; fit {
			*m |= markFit
		}
		if urgency = f.Urgency; urgency == objective.UrgencyBlocked {
			pr.setStuck(f)
			urgency = objective.UrgencyNone
		}
	}
	pr.waiting.put(i, urgency)
}

// IsStuck says whether the last step found that nothing can be done about a partition.
func (pr *Proposer) IsStuck(i uint32) bool {
	return int(i) < len(pr.marks) && pr.marks[i]&markStuck != 0
}

// IsFit says whether the last step found a partition complete, with every replica live and sound.
func (pr *Proposer) IsFit(i uint32) bool {
	return int(i) < len(pr.marks) && pr.marks[i]&markFit != 0
}

// setStuck notes that nothing can be done about a finding.
func (pr *Proposer) setStuck(f objective.Finding) {
	m := &pr.marks[f.Partition]
	if *m |= markStuck; f.Urgency < objective.UrgencySpread ||
		f.Urgency == objective.UrgencyBlocked {
		*m |= markBlocked
	}
	if *m&markListed == 0 {
		*m |= markListed
		pr.stuck = append(pr.stuck, f.Partition)
	}
}

// blocked counts the partitions that are blocked and returns those with the lowest ids. It drops
// from the list what is no longer stuck.
func (pr *Proposer) blocked() (int, []keys.PartitionID) {
	kept := pr.stuck[:0]
	var first []keys.PartitionID
	for _, i := range pr.stuck {
		p, m := &pr.state.Partitions[i], &pr.marks[i]
		if p.ID == 0 || *m&markStuck == 0 {
			*m &^= markStuck | markListed | markBlocked
			continue
		}
		kept = append(kept, i)
		if *m&markBlocked != 0 {
			first = append(first, p.ID)
		}
	}
	pr.stuck = kept
	slices.Sort(first)
	return len(first), slices.Clone(first[:min(len(first), planner.MaxNamed)])
}

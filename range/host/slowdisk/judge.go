package slowdisk

import (
	"slices"
	"time"
)

const (
	// A disk is slow if its syncs take at least slowTimes as long as those of its peers. It is well
	// again if they take at most wellTimes as long.
	slowTimes, wellTimes = 8, 4
	// slowLeast is the least sync time of a slow disk, whatever the syncs of the peers take: a
	// client hardly notices less. A disk whose syncs take at most half of slowLeast is well again
	// in any case.
	slowLeast = 10 * time.Millisecond
	// slowAfter is how many judgements in a row find a disk slow before it counts as slow.
	slowAfter = 3
	// wellAfter is how many judgements in a row find a slow disk well before it counts as well
	// again. The number doubles with each relapse, up to wellAfterMost, and falls back after
	// wellAfterMost judgements without a relapse.
	wellAfter     = 20
	wellAfterMost = 600
)

// Judge decides whether the disk of a process is slow.
type Judge struct {
	slow bool
	// row counts the judgements in a row that differ from slow.
	row int
	// after is how many judgements in a row it takes to be well again. calm counts the judgements
	// since the disk became well.
	after, calm int
}

// Slow returns the last decision.
func (j *Judge) Slow() bool { return j.slow }

// Look judges once more, by how long syncs take here and at each of the reachable peers (0:
// unknown). It returns true if the decision has changed. It is called once a second.
func (j *Judge) Look(own time.Duration, peers []time.Duration) (changed bool) {
	if !j.slow {
		if j.calm++; j.calm > wellAfterMost {
			j.after = 0
		}
	}
	usual, known := usualOf(peers)
	known = known && own > 0
	differs, least := known && own >= max(slowLeast, slowTimes*usual), slowAfter
	if j.slow {
		// A disk about which nothing is known, because hardly anything is written, is well. So is
		// one whose peers are unknown.
		differs, least = !known || own <= max(slowLeast/2, wellTimes*usual), j.after
	}
	if !differs {
		j.row = 0
		return false
	}
	if j.row++; j.row < least {
		return false
	}
	j.slow, j.row, j.calm = !j.slow, 0, 0
	if j.slow {
		j.after = min(max(wellAfter, 2*j.after), wellAfterMost)
	}
	return true
}

// usualOf returns the median sync time of the peers. If half of the peers are slow, a quorum is as
// slow with any leader, and another leader would win nothing.
func usualOf(peers []time.Duration) (time.Duration, bool) {
	known := slices.DeleteFunc(slices.Clone(peers), func(d time.Duration) bool { return d == 0 })
	if len(known) == 0 || 2*len(known) < len(peers) {
		return 0, false
	}
	slices.Sort(known)
	return known[len(known)/2], true
}

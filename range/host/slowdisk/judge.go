package slowdisk

import (
	"slices"
	"time"
)

const (
	// slowTimes is how many times as long as its peers' the syncs of a slow disk take, and wellTimes
	// how many times at most those of one that is well again.
	slowTimes, wellTimes = 8, 4
	// slowLeast is how long syncs of a slow disk take at least, whatever those of others do: a client
	// hardly notices less. Those of one that is well again take half of it at most, or less than
	// wellTimes those of its peers.
	slowLeast = 10 * time.Millisecond
	// slowAfter is how many judgements in a row find a disk slow before it counts as slow.
	slowAfter = 3
	// wellAfter is the same for a disk that is well again. It doubles with each relapse, up to
	// wellAfterMost; after as many judgements without a relapse it is forgotten.
	wellAfter     = 20
	wellAfterMost = 600
)

// Judge says whether the disk of a process is slow.
type Judge struct {
	slow bool
	// row counts the judgements in a row that differ from slow.
	row int
	// after is how many it takes to be well again, and calm counts the judgements since then.
	after, calm int
}

// Slow is the last judgement.
func (j *Judge) Slow() bool { return j.slow }

// Look judges once more: by how long syncs take here, and at each of the peers that are there (0: it
// is not known). It says whether the judgement has changed. It is called once a second.
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
		// A disk of which nothing is known, as it is hardly written any more, or nothing is known of
		// others, is slow for nobody.
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

// usualOf is how long syncs take at half of the peers, or less: if as many of them are slow, a
// quorum is as slow whichever server leads, and nothing is won by another leader.
func usualOf(peers []time.Duration) (time.Duration, bool) {
	known := slices.DeleteFunc(slices.Clone(peers), func(d time.Duration) bool { return d == 0 })
	if len(known) == 0 || 2*len(known) < len(peers) {
		return 0, false
	}
	slices.Sort(known)
	return known[len(known)/2], true
}

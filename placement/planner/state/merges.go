package state

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// PeakFor is how long a peak of load counts that a leader reports, and that of a merged partition.
const PeakFor = 10 * time.Minute

// Merged notes that a partition has absorbed its right neighbour. The caller calls it before it
// changes the partitions themselves.
//
// INVARIANT: the cost of a partition counts somewhere when the partition is gone, as after a split.
func (s *State) Merged(now time.Time, left, right keys.PartitionID) {
	i, known := s.PartitionIndex(left)
	j, also := s.PartitionIndex(right)
	if !known || !also {
		return
	}
	step := s.now
	s.now = now // both were calm up to now
	s.Remember(i, Merge{At: seconds(now), Peak: saturated(s.PeakOf(i) + s.PeakOf(j)),
		Calm: min(s.CalmFor(i), s.CalmFor(j)), Leader: s.Partitions[i].Leader})
	s.now = step
	p, q := &s.Partitions[i], &s.Partitions[j]
	s.takeOut(i)
	p.Bytes += q.Bytes
	p.LeaderLoad = saturated(planner.Cores(p.LeaderLoad) + planner.Cores(q.LeaderLoad))
	p.FollowerLoad = saturated(planner.Cores(p.FollowerLoad) + planner.Cores(q.FollowerLoad))
	s.putBack(i)
}

// Remember stores the last merge of a partition.
func (t *growths) Remember(i uint32, m Merge) { t.merges[i] = m }

// LastMerge returns the last merge of a partition, if it is remembered.
func (t *growths) LastMerge(i uint32) (Merge, bool) {
	m, found := t.merges[i]
	return m, found
}

// PeakOf returns the most that a partition has cost of late: in the last ten minutes or, if
// neighbours are merged after a shorter pause, in about that pause.
func (s *State) PeakOf(i uint32) planner.Cores {
	p, g := &s.Partitions[i], &s.Growths[i]
	peak := planner.Cores(g.peak)
	if s.settings.MergePause < PeakFor {
		peak = planner.Cores(max(g.Sustained, p.LeaderLoad))
	}
	if m, found := s.merges[i]; found && s.Since(m.At) < min(PeakFor, s.settings.MergePause) {
		peak = max(peak, planner.Cores(m.Peak))
	}
	return peak
}

// CalmFor returns for how long a partition has cost no more than PeakOf, as far as is known.
func (s *State) CalmFor(i uint32) time.Duration {
	calm := s.Growths[i].MeasuredFor()
	if m, found := s.merges[i]; found && m.Leader == s.Partitions[i].Leader &&
		s.Since(m.At) < s.settings.MergePause {
		calm = max(calm, m.Calm+s.Since(m.At))
	}
	return calm
}

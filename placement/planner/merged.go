package planner

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// peakFor is for how long the peaks last that leaders report, and with them those of what has
// merged.
const peakFor = 10 * time.Minute

// merged is what two partitions were known to be like when they merged. The leader of the one that
// they have become may measure anew, and does not know what the other one has cost.
type merged struct {
	at, peak uint32 // Unix seconds, and what both had cost at most, together
	calm     time.Duration
	// leader is the node that led both. Another one has not seen what they have cost since.
	leader uint16
}

// Merged takes note that a partition has consumed its right neighbour. It is called before the
// descriptors change.
//
// INVARIANT: what a partition costs counts somewhere when it is gone, as when it splits.
func (s *State) Merged(now time.Time, left, right keys.PartitionID) {
	i, known := s.partitionIndex[left]
	j, also := s.partitionIndex[right]
	if !known || !also {
		return
	}
	was := s.now
	s.now = now // as of which both were calm
	s.merged[i] = merged{at: seconds(now), peak: saturated(s.peakOf(i) + s.peakOf(j)),
		calm: min(s.calmFor(i), s.calmFor(j)), leader: s.partitions[i].leader}
	s.now = was
	p, q := &s.partitions[i], &s.partitions[j]
	fly, flies := s.flightOf[i]
	if flies {
		s.project(&s.flights[fly], -1)
	}
	s.account(p, -1)
	p.bytes += q.bytes
	p.leaderLoad = saturated(Cores(p.leaderLoad) + Cores(q.leaderLoad))
	p.followerLoad = saturated(Cores(p.followerLoad) + Cores(q.followerLoad))
	s.account(p, 1)
	if flies {
		s.project(&s.flights[fly], 1)
	}
}

// peakOf is what a partition has cost at most of late: in the last ten minutes or, if neighbours
// are merged after a shorter pause than that, about in that.
func (s *State) peakOf(i uint32) Cores {
	p, g := &s.partitions[i], &s.growths[i]
	peak := Cores(g.peak)
	if s.settings.MergePause < peakFor {
		peak = max(Cores(g.sustained), Cores(p.leaderLoad))
	}
	if m, found := s.merged[i]; found && s.since(m.at) < min(peakFor, s.settings.MergePause) {
		peak = max(peak, Cores(m.peak))
	}
	return peak
}

// calmFor is for how long a partition has cost no more than its peak, as far as is known.
func (s *State) calmFor(i uint32) time.Duration {
	calm := s.measuredFor(&s.growths[i])
	if m, found := s.merged[i]; found && m.leader == s.partitions[i].leader &&
		s.since(m.at) < s.settings.MergePause {
		calm = max(calm, m.calm+s.since(m.at))
	}
	return calm
}

// mergePause is how much is left of the pause after a partition's last split, or its last merge. A
// merge of small and calm partitions says nothing against another one, so the pause after it is the
// short one: what has shrunk to little comes together in a few rounds of it.
func (s *State) mergePause(i uint32) time.Duration {
	resized, pause := s.growths[i].resized, s.settings.MergePause
	if m, found := s.merged[i]; found && resized <= m.at {
		pause = min(pause, s.settings.SplitPause)
	}
	return s.leftOf(resized, pause)
}

func (s *State) since(at uint32) time.Duration {
	return time.Duration(s.now.Unix()-int64(at)) * time.Second
}

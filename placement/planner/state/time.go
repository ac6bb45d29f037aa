package state

import "time"

// mergedFor is how long a merge is remembered at least.
const mergedFor = time.Hour

// age lists as changed the partitions of which the passing of time alone, or the loads of nodes,
// may make something else. All other findings change with the partition, its nodes or its keyspace,
// and these list the partition themselves. Time changes two things: a merged partition may be
// merged again when its old peak counts no more and when it has been calm for long enough; and the
// best leader of a new tail of ascending keys follows the loads of the nodes.
func (s *State) age(last time.Time) {
	pause := s.settings.MergePause
	for i, m := range s.merges {
		since := s.Since(m.At)
		before := since - s.now.Sub(last)
		passes := func(long time.Duration) bool { return before < long && since >= long }
		if passes(pause) || passes(min(PeakFor, pause)) || passes(pause-m.Calm) {
			s.touch(i)
			s.touchLeftOf(i)
		}
		if since >= max(pause, mergedFor) {
			delete(s.merges, i)
		}
	}
	for i := range s.tails {
		s.touch(i)
		if g := &s.Growths[i]; g.Ascending < Sequential || s.LeftOf(g.Resized, TailFor) == 0 {
			delete(s.tails, i)
		}
	}
}

// seconds is a time as records keep it, in Unix seconds; 0: never.
func seconds(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	return uint32(max(1, min(t.Unix(), 1<<32-1)))
}

// Since returns how long before the step a time was that a record keeps.
func (s *State) Since(at uint32) time.Duration {
	return time.Duration(s.now.Unix()-int64(at)) * time.Second
}

// LeftOf returns how much of a pause is left that began at a time that a record keeps.
func (s *State) LeftOf(began uint32, pause time.Duration) time.Duration {
	if began == 0 {
		return 0
	}
	return max(0, pause-s.Since(began))
}

// Resting says whether the pause after the last operator on a partition is not over.
func (s *State) Resting(p *Partition) bool {
	return p.Ended != 0 && s.now.Unix()-int64(p.Ended) < int64(s.settings.Pause/time.Second)
}

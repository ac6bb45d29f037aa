package planner

import "time"

// What is found of a partition changes with itself, its nodes and its keyspace, and such a change
// marks it. Of a few it changes with the time alone, or with the loads of all nodes.

// mergedFor is for how long at least it is remembered what has merged.
const mergedFor = time.Hour

// age has those looked at again of which the time that has passed since the last step, or the load
// of nodes, may say something else: of what has merged, when what it cost before counts no more,
// and when it has been calm for long enough; and every new end of ascending keys.
func (s *State) age(last time.Time) {
	pause := s.settings.MergePause
	for i, m := range s.merged {
		since := s.since(m.at)
		before := since - s.now.Sub(last)
		passes := func(long time.Duration) bool { return before < long && since >= long }
		if passes(pause) || passes(min(peakFor, pause)) || passes(pause-m.calm) {
			s.touch(i)
			s.touchLeftOf(i)
		}
		if since >= max(pause, mergedFor) {
			delete(s.merged, i)
		}
	}
	for i := range s.newEnds {
		s.touch(i)
		if g := &s.growths[i]; g.ascending < sequential || s.leftOf(g.resized, endFor) == 0 {
			delete(s.newEnds, i)
		}
	}
}

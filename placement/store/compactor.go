package store

import (
	"errors"
	"time"
)

// compactor is the leader's other housekeeping: it keeps the history at its length. A compaction
// may take long, or wait for a quorum, so it has a goroutine of its own, from New to Close: leases
// run out meanwhile.
func (s *Store) compactor() {
	var seen timeline
	var ticks <-chan time.Time
	if s.config.HistoryFor > 0 {
		ticker := time.NewTicker(max(s.config.HistoryFor/timelineParts, time.Second))
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.long:
		case <-ticks:
			seen.note(s)
		}
		if to := s.compactTo(&seen); to > 0 {
			s.compactHistory(to)
		}
	}
}

// timelineParts is of how many parts of Config.HistoryFor a leader remembers the revision at their
// ends: it keeps so much more history at most.
const timelineParts = 16

// timeline is which revision this member had when. That one was the newest then, or older, so what
// is said holds whichever member leads: each remembers, so that a new leader need not begin anew.
type timeline struct{ marks []mark }

type mark struct {
	at       time.Time
	revision uint64
}

// note remembers this moment.
func (t *timeline) note(s *Store) {
	t.marks = append(t.marks, mark{s.lessor.Now(), s.Revision()})
}

// before is the newest revision that is as old as that; 0 if none is known to be. Older marks are
// forgotten.
func (t *timeline) before(at time.Time) (revision uint64) {
	n := 0
	for n < len(t.marks) && !t.marks[n].at.After(at) {
		revision = t.marks[n].revision
		n++
	}
	t.marks = t.marks[max(n-1, 0):]
	return revision
}

// compactTo is up to which revision the history is to go; 0: it stays.
func (s *Store) compactTo(seen *timeline) (to uint64) {
	if s.historyLong() {
		to = s.Revision() - s.config.History
	}
	if s.config.HistoryFor > 0 {
		to = max(to, seen.before(s.lessor.Now().Add(-s.config.HistoryFor)))
	}
	if l, _ := s.Leadership(); !l.Serving || to <= s.Compacted() {
		return 0
	}
	return to
}

// compactHistory compacts, in steps. It rests for as long as a step takes, so that what clients ask
// for has its turns.
func (s *Store) compactHistory(to uint64) {
	for s.Compacted() < to && s.ctx.Err() == nil {
		began := time.Now()
		step, err := s.compactionStep(to)
		if err == nil {
			_, err = s.do(s.ctx, Compact(step))
		}
		if err != nil && !errors.Is(err, ErrCompacted) {
			if s.ctx.Err() == nil {
				s.config.Logger.Info("history was not compacted; the leader tries again later",
					"to", to, "error", err)
			}
			return
		}
		rest := time.NewTimer(min(time.Since(began), longestRest))
		select {
		case <-s.ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
	}
}

// longestRest bounds the rest between two steps: one that has waited for a quorum needs none.
const longestRest = 100 * time.Millisecond

// historyLong says whether there are a tenth more revisions than are to be kept.
func (s *Store) historyLong() bool {
	return s.config.History > 0 &&
		s.Revision() > s.Compacted()+s.config.History+s.config.History/10
}

// compactionStep is up to where one command is to compact on the way to a revision: so that it
// removes about compactEvents events, or those of one revision if that has more.
func (s *Store) compactionStep(to uint64) (step uint64, err error) {
	err = s.read(func(r *reader) error {
		step = to
		first := r.meta.Compacted + 1
		end, n := r.event(to+1, 0), 0
		for ok := r.seek(r.event(first, 0), end); ok; ok = r.next(end) {
			revision, _, err := decodeEventKey(r.it.Key())
			if err != nil {
				return err
			}
			if n++; n > compactEvents && revision > first {
				step = revision - 1
				return nil
			}
		}
		return r.it.Error()
	})
	return step, err
}

package store

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
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
		to := s.compactTo(&seen)
		if l, _ := s.Leadership(); l.Serving {
			if err := s.compactHistory(to); err != nil {
				// What was refused was applied nevertheless, and is a reason to look again.
				s.rest(compactAgain)
			}
		}
	}
}

// compactAgain is when the leader tries again to compact after it could not.
const compactAgain = time.Second

// rest waits for so long, or for Close.
func (s *Store) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.ctx.Done():
	case <-timer.C:
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

// compactHistory compacts up to a revision, in steps, and removes what earlier compactions have
// left. It rests for as long as a step takes, so that what clients ask for has its turns. While an
// alarm refuses compactions it proposes none: the end of the alarm has it look again.
func (s *Store) compactHistory(to uint64) error {
	for s.ctx.Err() == nil {
		if alarmed(s.Alarms(), Compact(to)) != storepb.Code_OK {
			return nil
		}
		began := time.Now()
		var err error
		switch {
		case s.compacting() != nil:
			_, err = s.do(s.ctx, resumeCompaction(s.Compacted()))
		case s.Compacted() < to:
			var step *storepb.Compact
			if step, err = s.compactionStep(to); err == nil {
				_, err = s.do(s.ctx, compaction(step))
			}
		default:
			return nil
		}
		if err != nil && !errors.Is(err, ErrCompacted) {
			if s.ctx.Err() == nil {
				s.config.Logger.Info("history was not compacted; the leader tries again later",
					"to", to, "error", err)
			}
			return err
		}
		s.rest(min(time.Since(began), longestRest))
	}
	return nil
}

// longestRest bounds the rest between two steps: one that has waited for a quorum needs none.
const longestRest = 100 * time.Millisecond

// historyLong says whether there are a tenth more revisions than are to be kept.
func (s *Store) historyLong() bool {
	return s.config.History > 0 &&
		s.Revision() > s.Compacted()+s.config.History+s.config.History/10
}

// compactionStep is what one command is to do of a compaction at a revision: as many revisions as
// have about compactEvents events, or a part of what is to be removed for one that has more, if all
// members know of parts.
func (s *Store) compactionStep(to uint64) (step *storepb.Compact, err error) {
	err = s.read(func(r *reader) error {
		step = &storepb.Compact{Revision: to}
		first := r.meta.Compacted + 1
		end, n := r.event(to+1, 0), 0
		for ok := r.seek(r.firstEvent(r.meta), end); ok; ok = r.next(end) {
			revision, _, err := decodeEventKey(r.it.Key())
			if err != nil {
				return err
			}
			if n++; n > compactEvents {
				step.Revision = max(revision-1, first)
				if revision <= first && s.mayUse(compactFormat) {
					step.Events = compactEvents
				}
				return nil
			}
		}
		return r.it.Error()
	})
	return step, err
}

func compaction(m *storepb.Compact) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Compact{Compact: m}}
}

// resumeCompaction is a command that removes more of what the compaction at a revision has left.
func resumeCompaction(at uint64) *storepb.Command {
	return compaction(&storepb.Compact{Revision: at, Events: compactEvents, Resume: true})
}

// prepareCompaction does a long way in steps, so that none stops the log for long, and returns the
// last one.
func (s *Store) prepareCompaction(
	ctx context.Context, c *storepb.Command, m *storepb.Compact,
) (*storepb.Command, error) {
	to := m.GetRevision()
	for !m.GetResume() && s.Compacted() < to && to <= s.Revision() {
		step, err := s.compactionStep(to)
		if err != nil {
			return nil, err
		}
		if step.Revision >= to {
			return &storepb.Command{Origin: c.Origin, Request: c.Request, Session: c.Session,
				Sequence: c.Sequence, Acknowledged: c.Acknowledged, Auth: c.Auth,
				Op: compaction(step).Op}, nil
		}
		if _, err := s.do(ctx, compaction(step)); err != nil && !errors.Is(err, ErrCompacted) {
			return nil, err
		}
	}
	return c, nil
}

// compactionApplied says that the store is as far with its compactions as the metadata are. The
// size of the store is known already: whoever has waited for a compaction asks for the size.
func (s *Store) compactionApplied(meta *storepb.MetaRecord) {
	s.mu.Lock()
	s.restLocked(meta)
	s.mu.Unlock()
	if s.historyLong() || meta.CompactionRest != nil {
		s.pokeCompactor()
	}
}

// restLocked follows whether a compaction has left something to be removed.
func (s *Store) restLocked(meta *storepb.MetaRecord) {
	switch left := meta.CompactionRest != nil; {
	case left && s.mu.compacting == nil:
		s.mu.compacting = make(chan struct{})
	case !left && s.mu.compacting != nil:
		close(s.mu.compacting)
		s.mu.compacting = nil
	}
}

// compacting is closed when all was removed that a compaction has left; nil: that is so.
func (s *Store) compacting() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.compacting
}

// AwaitCompaction returns when this member has removed all that compactions have made unreadable,
// or with the error of ctx. A compaction of many changes is done when they cannot be read, and the
// leader has them removed bit by bit.
func (s *Store) AwaitCompaction(ctx context.Context) error {
	rest := s.compacting()
	if rest == nil {
		return nil
	}
	select {
	case <-rest:
		return nil
	case <-s.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

package store

// compactor is the leader's other housekeeping: it keeps the history at its length. A compaction
// may take long, or wait for a quorum, so it has a goroutine of its own, from New to Close: leases
// run out meanwhile.
func (s *Store) compactor() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.long:
		}
		s.compactHistory()
	}
}

// compactHistory compacts if the history has become a tenth longer than it is to be.
func (s *Store) compactHistory() {
	if !s.historyLong() {
		return
	}
	if l, _ := s.Leadership(); !l.Serving {
		return
	}
	to := s.Revision() - s.config.History
	if _, err := s.Do(s.ctx, Compact(to)); err != nil && s.ctx.Err() == nil {
		s.config.Logger.Info("history was not compacted; the leader tries again later",
			"to", to, "error", err)
	}
}

func (s *Store) historyLong() bool {
	return s.Revision() > s.Compacted()+s.config.History+s.config.History/10
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

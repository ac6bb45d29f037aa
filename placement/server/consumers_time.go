package server

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
)

// provenTime is by how much the time is ahead of the monotonic clock, at least, as was found during
// the leadership of a term.
type provenTime struct {
	term  uint64
	ahead int64
}

// proveTime looks what is proven from now on.
func (s *Server) proveTime(v *store.View) error {
	l, _ := s.store.Leadership()
	alive, err := meta.LoadAlive(v)
	if err != nil {
		return err
	}
	var proven *provenTime
	if ahead, ok := s.reports.Clocks(l.Term, alive); ok {
		proven = &provenTime{l.Term, ahead}
	}
	s.consumers.proven.Store(proven)
	return nil
}

// times reads the clocks.
func (s *Server) times() consumer.Times {
	t := consumer.Times{Wall: time.Unix(0, s.config.Physical.Now())}
	if l, _ := s.store.Leadership(); l.IsLeader {
		if p := s.consumers.proven.Load(); p != nil && p.term == l.Term {
			t.Proven = time.Unix(0, s.config.Monotonic()+p.ahead)
		}
	}
	return t
}

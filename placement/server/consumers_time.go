package server

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
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
	if ahead, ok := s.soft.clocks(l.Term, alive); ok {
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

// clocks is by how much the clocks of a majority of the nodes that are alive are ahead of the
// monotonic clock, at least; false: no majority has told during that term.
func (s *soft) clocks(term uint64, alive map[uint64]bool) (ahead int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.term != term {
		return 0, false
	}
	var told []int64
	for id := range alive {
		if n := s.mu.nodes[keys.NodeID(id)]; n != nil && n.ahead != nil {
			told = append(told, *n.ahead)
		}
	}
	return consumer.Majority(told, len(alive))
}

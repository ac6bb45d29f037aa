package consumer

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
)

// provenTime is the least amount by which the time is ahead of the monotonic clock. It was
// determined during the leadership of a term.
type provenTime struct {
	term  uint64
	ahead int64
}

// proveTime determines the proven time.
func (k *Keeper) proveTime(v *store.View) error {
	l, _ := k.config.Store.Leadership()
	alive, err := meta.LoadAlive(v)
	if err != nil {
		return err
	}
	var proven *provenTime
	if ahead, ok := k.config.Clocks(l.Term, alive); ok {
		proven = &provenTime{l.Term, ahead}
	}
	k.proven.Store(proven)
	return nil
}

// times reads the clocks.
func (k *Keeper) times() Times {
	t := Times{Wall: time.Unix(0, k.config.Physical.Now())}
	if l, _ := k.config.Store.Leadership(); l.IsLeader {
		if p := k.proven.Load(); p != nil && p.term == l.Term {
			t.Proven = time.Unix(0, k.config.Monotonic()+p.ahead)
		}
	}
	return t
}

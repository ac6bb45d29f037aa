package host

import (
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// published is what the workers publish of a group. Any goroutine may read it.
type published struct {
	leadership atomic.Pointer[group.Leadership]
	// stirring is what steps.awake is.
	stirring atomic.Bool

	// applied and committed are how far this replica has applied the log, and knows the log to be
	// committed.
	applied, committed atomic.Uint64
	last               struct {
		sync.Mutex
		// Applied is the last entry that is applied.
		raftlog.Applied
	}
	// waiting are the reads that wait for an index to be applied.
	waiting readWaiters
}

// Leader returns the leader, as far as this replica knows (0: none is known), and the term.
func (p *published) Leader() (keys.ReplicaID, uint64) {
	l := p.leadership.Load()
	return l.Leader, l.Term
}

// Awake says whether the group does anything at present, but sleep.
func (p *published) Awake() bool { return p.stirring.Load() }

// Applied returns the last applied index.
func (p *published) Applied() uint64 { return p.applied.Load() }

// Committed is up to where this replica knows the log to be committed. A leader knows it before the
// followers do.
func (p *published) Committed() uint64 { return max(p.committed.Load(), p.applied.Load()) }

func (p *published) appliedState() raftlog.Applied {
	p.last.Lock()
	defer p.last.Unlock()
	return p.last.Applied
}

// setApplied says what is applied; conf is nil if the configuration is what it was.
func (p *published) setApplied(index, term uint64, conf *group.Configuration) {
	p.last.Lock()
	p.last.Index, p.last.Term = index, term
	if conf != nil {
		p.last.Configuration = conf.ConfState()
	}
	p.last.Unlock()
	p.applied.Store(index)
	p.waiting.advance(index)
}

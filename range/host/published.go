package host

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// published is what the workers publish about a group. Any goroutine may read it.
type published struct {
	leadership atomic.Pointer[group.Leadership]
	// stirring is a copy of steps.awake.
	stirring atomic.Bool

	// applied and committed are the indexes up to which this replica has applied the log, and knows
	// it to be committed.
	applied, committed atomic.Uint64
	// appended is the index of the last entry that was given to the log before the newest entries
	// were given to be applied.
	appended atomic.Uint64
	last     struct {
		sync.Mutex
		// Applied describes the last applied entry.
		raftlog.Applied
	}
	// waiting holds the reads that wait for an index to be applied.
	waiting readWaiters
}

// Leader returns the leader, as far as this replica knows (0: none is known), and the term.
func (p *published) Leader() (keys.ReplicaID, uint64) {
	l := p.leadership.Load()
	return l.Leader, l.Term
}

// Awake reports whether the group is awake.
func (p *published) Awake() bool { return p.stirring.Load() }

// Applied returns the last applied index.
func (p *published) Applied() uint64 { return p.applied.Load() }

// Appended returns the index of an entry of the log. All entries behind it were proposed when this
// replica knew that what it has applied is committed.
func (p *published) Appended() uint64 { return p.appended.Load() }

// Committed returns the index up to which this replica knows the log to be committed. A leader
// learns of a commit before its followers do.
func (p *published) Committed() uint64 { return max(p.committed.Load(), p.applied.Load()) }

func (p *published) appliedState() raftlog.Applied {
	p.last.Lock()
	defer p.last.Unlock()
	return p.last.Applied
}

// setApplied publishes what is applied; conf is nil if the configuration has not changed.
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

// lease is a leader's lease. It counts only while the clocks are trusted.
type lease struct {
	published *group.Lease
	// clocks says since when the monotonic clock has run without a stop; now reads that clock.
	clocks *clockhealth.Health
	now    func() int64
	// lasts is how long a lease lasts.
	lasts time.Duration
}

// Lease returns the term of this replica's leadership and whether its lease is valid now.
func (l *lease) Lease() (term uint64, ok bool) {
	if term, ok = l.published.Valid(l.now()); !ok || !l.counts() {
		return 0, false
	}
	return term, true
}

// LeaseLeft returns how much longer the lease is valid; not positive if it is not valid.
func (l *lease) LeaseLeft() time.Duration {
	left := l.published.Left(l.now())
	if left > 0 && !l.counts() {
		return 0
	}
	return left
}

// counts reports whether the monotonic clock is known to have run without a stop since the lease
// began.
func (l *lease) counts() bool {
	from, ok := l.clocks.LeaseFloor()
	return ok && (from == 0 || l.published.Left(from) > l.lasts)
}

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

// lease is a leader's lease, which counts only while the clocks are believed.
type lease struct {
	published *group.Lease
	// clocks says since when the monotonic clock has gone on, and now is that clock.
	clocks *clockhealth.Health
	now    func() int64
	// lasts is how long leases last.
	lasts time.Duration
}

// Lease says whether this replica leads and its lease stands at this moment.
func (l *lease) Lease() (term uint64, ok bool) {
	if term, ok = l.published.Valid(l.now()); !ok || !l.counts() {
		return 0, false
	}
	return term, true
}

// LeaseLeft is how much longer the lease stands; not positive if it does not stand.
func (l *lease) LeaseLeft() time.Duration {
	left := l.published.Left(l.now())
	if left > 0 && !l.counts() {
		return 0
	}
	return left
}

// counts says whether the monotonic clock has gone on since the lease began, as far as is known,
// but for less than the lease has to spare.
func (l *lease) counts() bool {
	from, ok := l.clocks.LeaseFloor()
	return ok && (from == 0 || l.published.Left(from) > l.lasts)
}

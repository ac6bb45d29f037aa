package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
)

// closer closes timestamps for a replica, and implements group.Closer.
type closer struct {
	m    *machine.Machine
	eval *eval.Evaluator
}

// SetClosedLag sets how far behind the clock timestamps are closed. 0 is the default lag. With a
// negative lag timestamps are closed only when a leader hands over and when partitions split or
// merge.
func (r *closer) SetClosedLag(lag time.Duration) {
	if !r.m.SetLag(lag) {
		return
	}
	r.m.Mu.Lock()
	asleep := r.m.Mu.Closing.Asleep()
	r.m.Mu.Closing.Awake() // it sleeps in a set of groups with another lag
	r.m.Mu.Unlock()
	if asleep {
		r.m.Group.Wake()
	}
}

// CloseIdle closes timestamps without a log entry, if this replica leads and nothing is in flight
// or being evaluated. A follower that has applied the log up to the index may read at and below the
// timestamp. It returns false if nothing can be closed.
func (r *closer) CloseIdle() (closed hlc.Timestamp, index uint64, ok bool) {
	at, term := r.m.Closable()
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	if !r.eval.IdleLocked() || r.m.Mu.Closing.Asleep() {
		return closed, 0, false
	}
	closed = r.m.PromiseLocked(at, term)
	r.m.Mu.Closing.CloseBeside(closed) // on this replica too
	return closed, r.m.Mu.Applied.Index, !closed.IsZero()
}

// Sleep implements group.Closer. From now on a timestamp that is closed for the set of groups is
// closed for this group, until a write is evaluated.
func (r *closer) Sleep(join group.Join) (may bool) {
	at, term := r.m.Closable()
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	switch {
	case r.m.Lag() < 0 || r.m.Mu.Closing.Asleep() || r.m.IsClosed() || !r.m.Node.ClockTrusted():
		return true
	case !r.eval.IdleLocked() || r.m.PromiseLocked(at, term).IsZero():
		return r.m.Descriptor().GetFrozen() != nil
	}
	place := join(term, at, r.m.Lag(), r.m.Mu.Applied.Index)
	r.m.Mu.Closing.Sleep(place)
	return place != nil
}

// Unclosed implements group.Closer. It reports that no timestamp is closed for the group, which
// sleeps under this replica's leadership.
func (r *closer) Unclosed() bool {
	if r.m.Lag() < 0 || !r.m.Node.ClockTrusted() {
		return false
	}
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	l := &r.m.Mu.Leadership
	return l.IsLeader && l.Serving() && !r.m.Mu.Closing.Asleep() && r.m.Descriptor().GetFrozen() == nil
}

// SleepsIn implements group.Closer.
func (r *closer) SleepsIn(s group.Source) {
	// INVARIANT: the source changes under the lock under which it is read. Once SleepsIn returns,
	// no read relies on the previous source.
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	r.m.Mu.Closing.SleepIn(s)
}

// NoteClosed takes a timestamp that a leader has closed without a log entry: no leader writes or
// locks at or below it in an entry after the index. A timestamp that is further ahead of this
// server's clock than clocks may differ is ignored: the sender's clock is wrong.
func (r *closer) NoteClosed(closed hlc.Timestamp, index uint64) {
	clock := r.m.Node.Clock
	if closed.Wall-clock.Physical() > int64(clock.MaxOffset()) {
		return
	}
	r.m.Mu.Lock()
	r.m.Mu.Closing.Note(closed, index, r.m.Mu.Applied.Index)
	r.m.Mu.Unlock()
	// Waiting reads look for themselves: the caller may hold locks, so nothing is woken here.
}

// Closed returns the closed timestamp of this replica: all writes at or below it are applied here
// or present as locks.
func (r *closer) Closed() hlc.Timestamp {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.ClosedLocked()
}

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

// SetClosedLag sets how far behind the clock timestamps are closed; 0: by default; negative: none
// are, but where a leader hands over, and where partitions split and merge.
func (r *closer) SetClosedLag(lag time.Duration) {
	if !r.m.SetLag(lag) {
		return
	}
	r.m.Mu.Lock()
	asleep := r.m.Mu.Closing.Asleep()
	r.m.Mu.Closing.Awake() // it sleeps with others of another lag
	r.m.Mu.Unlock()
	if asleep {
		r.m.Group.Wake()
	}
}

// CloseIdle closes timestamps beside the log, if this replica leads and nothing is in flight or
// being evaluated. A follower that has applied the log up to the index may read at and below the
// timestamp. It returns false if there is nothing to tell.
func (r *closer) CloseIdle() (closed hlc.Timestamp, index uint64, ok bool) {
	at, term := r.m.Closable()
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	if !r.eval.IdleLocked() || r.m.Mu.Closing.Asleep() {
		return closed, 0, false
	}
	closed = r.m.PromiseLocked(at, term)
	r.m.Mu.Closing.CloseBeside(closed) // also here
	return closed, r.m.Mu.Applied.Index, !closed.IsZero()
}

// Sleep implements group.Closer. From now on what is closed for all groups of a set is closed for
// this one, until something is evaluated.
func (r *closer) Sleep(join group.Join) (may bool) {
	at, term := r.m.Closable()
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	switch {
	case r.m.Lag() < 0 || r.m.Mu.Closing.Asleep() || r.m.IsClosed() || !r.m.Node.BelievesClock():
		return true
	case !r.eval.IdleLocked() || r.m.PromiseLocked(at, term).IsZero():
		return r.m.Descriptor().GetFrozen() != nil
	}
	place := join(term, at, r.m.Lag(), r.m.Mu.Applied.Index)
	r.m.Mu.Closing.Sleep(place)
	return place != nil
}

// Unclosed implements group.Closer: nothing is closed for the group, which sleeps under this
// replica.
func (r *closer) Unclosed() bool {
	if r.m.Lag() < 0 || !r.m.Node.BelievesClock() {
		return false
	}
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	l := &r.m.Mu.Leadership
	return l.IsLeader && l.Serving() && !r.m.Mu.Closing.Asleep() && r.m.Descriptor().GetFrozen() == nil
}

// SleepsIn implements group.Closer.
func (r *closer) SleepsIn(s group.Source) {
	// INVARIANT: under the lock under which it is asked: once this returns, nothing goes by what the
	// last one tells.
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	r.m.Mu.Closing.SleepIn(s)
}

// NoteClosed takes what a leader has closed beside the log: nothing at or below the timestamp is
// written or locked behind the index, by whichever leader. What lies further ahead of this server's
// clock than clocks are apart is ignored: the sender's is wrong.
func (r *closer) NoteClosed(closed hlc.Timestamp, index uint64) {
	clock := r.m.Node.Clock
	if closed.Wall-clock.Physical() > int64(clock.MaxOffset()) {
		return
	}
	r.m.Mu.Lock()
	r.m.Mu.Closing.Note(closed, index, r.m.Mu.Applied.Index)
	r.m.Mu.Unlock()
	// Reads that wait look by themselves: the caller may hold locks.
}

// Closed is the timestamp that is closed here: all that is ever written at or below it is applied,
// or locked.
func (r *closer) Closed() hlc.Timestamp {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	return r.m.ClosedLocked()
}

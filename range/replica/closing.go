package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
)

// When timestamps are closed. Package closing has the rules.

// DefaultClosedLag is how far behind the clock timestamps are closed, unless the keyspace says
// otherwise.
const DefaultClosedLag = time.Second

// SetClosedLag sets how far behind the clock timestamps are closed; 0: by default; negative: none
// are, but where a leader hands over, and where partitions split and merge.
func (r *Replica) SetClosedLag(lag time.Duration) {
	if r.closedLag.Swap(int64(lag)) == int64(lag) {
		return
	}
	r.mu.Lock()
	asleep := r.mu.closing.Asleep()
	r.mu.closing.Awake() // it sleeps with others of another lag
	r.mu.Unlock()
	if asleep {
		r.group.Wake()
	}
}

func (r *Replica) lag() time.Duration {
	if lag := r.closedLag.Load(); lag != 0 {
		return time.Duration(lag)
	}
	return DefaultClosedLag
}

// closable is the timestamp that this replica could close if it leads, as far as its clock and its
// lease go; zero: none. It is called without the lock, before the promise is made.
func (r *Replica) closable() (at hlc.Timestamp, term uint64) {
	lag := int64(r.lag())
	if lag < 0 {
		return hlc.Timestamp{}, 0
	}
	// INVARIANT: the clock is read before the lease is looked at.
	wall, trusted := r.node.Clock.PhysicalReading()
	if !trusted || wall <= lag || !r.node.BelievesClock() {
		return hlc.Timestamp{}, 0
	}
	term, leased := r.group.Lease()
	if !leased {
		return hlc.Timestamp{}, 0
	}
	return hlc.Timestamp{Wall: wall - lag}, term
}

// promiseLocked promises a timestamp that is closable in a term, and returns what is promised:
// that, or what was promised before; zero if this replica cannot promise anything.
func (r *Replica) promiseLocked(at hlc.Timestamp, term uint64) hlc.Timestamp {
	l := &r.mu.leadership
	if at.IsZero() || !l.IsLeader || l.Term != term || !l.Serving() || r.lowDueLocked() ||
		l.HandingOver() ||
		r.mu.holding != nil || r.Descriptor().GetFrozen() != nil {
		return hlc.Timestamp{}
	}
	return r.mu.closing.Promise(at)
}

// floorLocked is the timestamp above which all is to be written and locked: what is closed, by what
// is applied here, and by what this leadership has promised.
func (r *Replica) floorLocked() hlc.Timestamp {
	return hlc.Max(r.mu.applied.Closed, r.mu.closing.Promised())
}

// servedLocked is the highest timestamp at which anything was read, or closed, by this leadership.
func (r *Replica) servedLocked() hlc.Timestamp {
	return hlc.Max(r.mu.cache.Max(), r.mu.closing.Promised())
}

// CloseIdle closes timestamps beside the log, if this replica leads and nothing is in flight or
// being evaluated. A follower that has applied the log up to the index may read at and below the
// timestamp. It returns false if there is nothing to tell.
func (r *Replica) CloseIdle() (closed hlc.Timestamp, index uint64, ok bool) {
	at, term := r.closable()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.idleLocked() || r.mu.closing.Asleep() {
		return closed, 0, false
	}
	closed = r.promiseLocked(at, term)
	r.mu.closing.CloseBeside(closed) // also here
	return closed, r.mu.applied.Index, !closed.IsZero()
}

// idleLocked says that nothing is in flight or being evaluated.
func (r *Replica) idleLocked() bool {
	return !r.mu.evaluating && r.mu.open == nil && r.mu.building == nil && len(r.mu.inFlight) == 0
}

// Sleep implements group.Closer. From now on what is closed for all groups of a set is closed for
// this one, until something is evaluated.
func (r *Replica) Sleep(join group.Join) (may bool) {
	at, term := r.closable()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.lag() < 0 || r.mu.closing.Asleep() || r.closed.Load() || !r.node.BelievesClock():
		return true
	case !r.idleLocked() || r.promiseLocked(at, term).IsZero():
		return r.Descriptor().GetFrozen() != nil
	}
	place := join(term, at, r.lag(), r.mu.applied.Index)
	r.mu.closing.Sleep(place)
	return place != nil
}

// Unclosed implements group.Closer: nothing is closed for the group, which sleeps under this
// replica.
func (r *Replica) Unclosed() bool {
	if r.lag() < 0 || !r.node.BelievesClock() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.mu.leadership
	return l.IsLeader && l.Serving() && !r.mu.closing.Asleep() && r.Descriptor().GetFrozen() == nil
}

// SleepsIn implements group.Closer.
func (r *Replica) SleepsIn(s group.Source) {
	// INVARIANT: under the lock under which it is asked: once this returns, nothing goes by what the
	// last one tells.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.closing.SleepIn(s)
}

package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
)

// Closed timestamps.
//
// A leader promises that nothing at or below a timestamp is written, or locked, any more: it closes
// the timestamp. It lies the keyspace's closed lag behind the leader's physical clock, so that
// hardly a write has to move because of it. A follower that has applied all that was proposed
// before the promise answers reads at or below it (stale reads of its own state), without asking a
// leader.
//
// A promise goes out with each entry of the log (proposal.Entry.Closed), and beside the log when
// there is nothing to replicate: with the heartbeats of a group that is awake, and for all groups
// together that sleep (package host). Beside the log it names an index; it counts for a follower
// that has applied the log up to that.
//
// INVARIANT: what is promised holds for every later leader. A promise is made like a read is
// served: the clock is read, and after that the lease is looked at, so no other leader has begun
// before the clock was read. One that begins later has its low-water mark above that clock's
// reading (leadership.takeLow), and so above what is promised, which is not above the clock.
//
// INVARIANT: a partition that is frozen promises nothing: what consumes it goes by what the freeze
// has closed.
//
// INVARIANT: within the leadership each later write and lock asks for the floor under the lock
// under which promises are made. What is evaluated when a promise is made asks later, or is in the
// entry that brings it; what is in flight lies before that entry in the log. A promise beside the
// log is made only when nothing is in flight.

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
	asleep := r.asleepLocked()
	r.awakeLocked() // it sleeps with others of another lag
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
	if !trusted || wall <= lag || !r.node.clockTrusted() {
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
	if at.IsZero() || !l.IsLeader || l.Term != term || !l.serving || r.lowDueLocked() ||
		l.handingOver ||
		r.mu.holding != nil || r.Descriptor().GetFrozen() != nil {
		return hlc.Timestamp{}
	}
	r.mu.promised = hlc.Max(r.mu.promised, at)
	return r.mu.promised
}

// floorLocked is the timestamp above which all is to be written and locked: what is closed, by what
// is applied here, and by what this leadership has promised.
func (r *Replica) floorLocked() hlc.Timestamp {
	return hlc.Max(r.mu.applied.closed, r.mu.promised)
}

// servedLocked is the highest timestamp at which anything was read, or closed, by this leadership.
func (r *Replica) servedLocked() hlc.Timestamp {
	return hlc.Max(r.mu.cache.Max(), r.mu.promised)
}

// CloseIdle closes timestamps beside the log, if this replica leads and nothing is in flight or
// being evaluated. A follower that has applied the log up to the index may read at and below the
// timestamp. It returns false if there is nothing to tell.
func (r *Replica) CloseIdle() (closed hlc.Timestamp, index uint64, ok bool) {
	at, term := r.closable()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.idleLocked() || r.asleepLocked() {
		return closed, 0, false
	}
	closed = r.promiseLocked(at, term)
	r.mu.beside.closed = hlc.Max(r.mu.beside.closed, closed) // also here
	return closed, r.mu.applied.index, !closed.IsZero()
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
	case r.lag() < 0 || r.asleepLocked() || r.closed.Load() || !r.node.clockTrusted():
		return true
	case !r.idleLocked() || r.promiseLocked(at, term).IsZero():
		return r.Descriptor().GetFrozen() != nil
	}
	r.mu.asleep = join(term, at, r.lag(), r.mu.applied.index)
	return r.mu.asleep != nil
}

// Unclosed implements group.Closer: nothing is closed for the group, which sleeps under this
// replica.
func (r *Replica) Unclosed() bool {
	if r.lag() < 0 || !r.node.clockTrusted() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.mu.leadership
	return l.IsLeader && l.serving && !r.asleepLocked() && r.Descriptor().GetFrozen() == nil
}

// asleepLocked says that others close timestamps for this group.
func (r *Replica) asleepLocked() bool { return r.mu.asleep != nil && !r.mu.asleep.Gone() }

// awakeLocked ends that. It comes before anything is evaluated.
//
// INVARIANT: what was closed in its sleep is promised.
func (r *Replica) awakeLocked() {
	if r.mu.asleep == nil {
		return
	}
	closed := hlc.Timestamp{Wall: r.mu.asleep.Remove()}
	r.mu.asleep = nil
	r.mu.promised = hlc.Max(r.mu.promised, closed)
	r.mu.beside.closed = hlc.Max(r.mu.beside.closed, closed) // nothing was in flight
}

// SleepsIn implements group.Closer.
func (r *Replica) SleepsIn(s group.Source) {
	// INVARIANT: under the lock under which it is asked: once this returns, nothing goes by what the
	// last one tells.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.sleepsIn = s
}

package group

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Lease is the part of a leader's lease that readers see. Times are the host's monotonic
// nanoseconds.
type Lease struct {
	term   atomic.Uint64
	expiry atomic.Int64
}

// Valid reports whether the lease is valid at now, and for which term. It was valid when now was
// read from the clock; a caller that reads state afterwards serves what was true at that moment or
// later.
func (l *Lease) Valid(now int64) (term uint64, ok bool) {
	term = l.term.Load()
	if term == 0 || now >= l.expiry.Load() {
		return 0, false
	}
	// Both values must belong to one leadership: its end clears expiry before term, its beginning
	// sets term before expiry.
	return term, l.term.Load() == term
}

// Left is how much longer the lease stands after now; not positive if it does not stand.
func (l *Lease) Left(now int64) time.Duration { return time.Duration(l.expiry.Load() - now) }

type ack struct {
	replica keys.ReplicaID
	sent    int64
}

type heardAck struct {
	replica keys.ReplicaID
	term    uint64
	sent    int64
}

// leaseTracker collects the answers to heartbeats.
type leaseTracker struct {
	published Lease
	duration  time.Duration
	self      keys.ReplicaID
	members   Configuration
	// alone is set if no other replica's promise is needed.
	alone     bool
	acks      []ack // one for each other replica
	pending   []heardAck
	forfeited bool
	scratch   []int64
}

func (t *leaseTracker) init(members Configuration, self keys.ReplicaID, duration time.Duration) {
	t.duration = duration
	t.set(members, self)
}

// set sets the replicas. The answers of replicas that stay are kept: a replica keeps its promise
// whatever its role.
func (t *leaseTracker) set(members Configuration, self keys.ReplicaID) {
	old := t.acks
	t.self, t.members, t.acks = self, members, nil
	for _, m := range members.Members {
		if m.Replica == self {
			continue
		}
		a := ack{replica: m.Replica}
		if i := slices.IndexFunc(old, func(o ack) bool { return o.replica == m.Replica }); i >= 0 {
			a = old[i]
		}
		t.acks = append(t.acks, a)
	}
	t.alone = members.Quorum(func(id keys.ReplicaID) bool { return id == self })
}

// reconfigure changes which replicas must have answered. The lease is recomputed at once from the
// answers, and may become shorter: a lease that stood on the old voters alone must not outlast a
// joint configuration that may begin here.
func (t *leaseTracker) reconfigure(members Configuration, self keys.ReplicaID, leading bool,
	now int64) {
	t.set(members, self)
	if leading && !t.forfeited {
		t.published.expiry.Store(t.worth(now))
	}
}

// worth returns until when the answers carry a lease; 0: they carry none.
func (t *leaseTracker) worth(now int64) int64 {
	start := now
	for _, votes := range [...]func(Role) bool{Role.votesOld, Role.votesNew} {
		t.scratch = t.scratch[:0]
		for _, m := range t.members.Members {
			if votes(m.Role) && m.Replica == t.self {
				t.scratch = append(t.scratch, now)
			}
		}
		for i := range t.acks {
			if votes(t.members.Role(t.acks[i].replica)) {
				t.scratch = append(t.scratch, t.acks[i].sent)
			}
		}
		n := len(t.scratch)
		if n == 0 {
			return 0
		}
		slices.Sort(t.scratch)
		// A majority has answered a heartbeat sent at this time or later.
		start = min(start, t.scratch[n-n/2-1])
	}
	if start <= 0 {
		return 0
	}
	return start + int64(t.duration)
}

// expiry is when the lease ends; 0: there is none.
func (t *leaseTracker) expiry() int64 { return t.published.expiry.Load() }

// heard notes an answer. It counts once the message that brought it has been stepped.
func (t *leaseTracker) heard(from keys.ReplicaID, term uint64, sent int64) {
	t.pending = append(t.pending, heardAck{from, term, sent})
}

// begin starts a leadership: nothing heard before counts.
func (t *leaseTracker) begin(term uint64) {
	for i := range t.acks {
		t.acks[i].sent = 0
	}
	t.forfeited = false
	t.published.expiry.Store(0)
	t.published.term.Store(term)
}

func (t *leaseTracker) end() {
	t.published.expiry.Store(0)
	t.published.term.Store(0)
}

func (t *leaseTracker) forfeit() {
	t.forfeited = true
	t.published.expiry.Store(0)
}

// credit extends the lease by the answers of this term. It ignores an answer with a clock reading
// from the future, which this process cannot have sent.
func (t *leaseTracker) credit(leading bool, term uint64, now int64) {
	if leading && !t.forfeited && t.alone {
		t.published.expiry.Store(now + int64(t.duration))
		return
	}
	if len(t.pending) == 0 {
		return
	}
	changed := false
	for _, p := range t.pending {
		if !leading || p.term != term || p.sent > now {
			continue
		}
		for i := range t.acks {
			if a := &t.acks[i]; a.replica == p.replica && p.sent > a.sent {
				a.sent, changed = p.sent, true
			}
		}
	}
	t.pending = t.pending[:0]
	if !changed || t.forfeited {
		return
	}
	if expiry := t.worth(now); expiry > 0 {
		if invariants.Enabled {
			t.checkInvariantExpiry(expiry, term, now)
		}
		t.published.expiry.Store(expiry)
	}
}

// checkInvariantExpiry checks that a lease belongs to the leader's term, and is covered by answers
// of a quorum of the present members.
func (t *leaseTracker) checkInvariantExpiry(expiry int64, term uint64, now int64) {
	invariants.Check(t.published.term.Load() == term && !t.forfeited &&
		expiry <= now+int64(t.duration),
		"replica %s has a lease until %d for term %d, at %d in term %d", t.self, expiry,
		t.published.term.Load(), now, term)
	invariants.Check(t.members.Quorum(func(id keys.ReplicaID) bool {
		i := slices.IndexFunc(t.acks, func(a ack) bool { return a.replica == id })
		return id == t.self || i >= 0 && t.acks[i].sent+int64(t.duration) >= expiry
	}), "replica %s has a lease until %d, and no quorum has answered what it sent %s before",
		t.self, expiry, t.duration)
}

package group

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Lease is what readers see of a leader's lease. Times are the host's monotonic nanoseconds.
type Lease struct {
	term   atomic.Uint64
	expiry atomic.Int64
}

// Valid says whether the lease stands at now, and for which term. The lease holds at the moment now
// was read from the clock; a caller that reads state afterwards serves what was true at that moment
// or later.
func (l *Lease) Valid(now int64) (term uint64, ok bool) {
	term = l.term.Load()
	if term == 0 || now >= l.expiry.Load() {
		return 0, false
	}
	// Both must be of one leadership: losing one clears expiry before term, and gaining one sets
	// term before expiry.
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
	acks      []ack // of the other voters
	pending   []heardAck
	forfeited bool
	scratch   []int64
}

func (t *leaseTracker) init(voters []uint64, self keys.ReplicaID, duration time.Duration) {
	t.duration = duration
	for _, id := range voters {
		if keys.ReplicaID(id) != self {
			t.acks = append(t.acks, ack{replica: keys.ReplicaID(id)})
		}
	}
}

// expiry is when the lease ends; 0: there is none.
func (t *leaseTracker) expiry() int64 { return t.published.expiry.Load() }

// heard notes an answer; it counts once the step it came with has been taken into account.
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

// credit extends the lease by the answers of this term. A clock reading from the future cannot be
// an answer to what this process sent, and is ignored.
func (t *leaseTracker) credit(leading bool, term uint64, now int64) {
	if leading && !t.forfeited && len(t.acks) == 0 {
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
	t.scratch = t.scratch[:0]
	for _, a := range t.acks {
		t.scratch = append(t.scratch, a.sent)
	}
	slices.Sort(t.scratch)
	// The leader itself is one of the quorum: of n voters, n/2 others are needed.
	voters := len(t.acks) + 1
	start := t.scratch[len(t.scratch)-voters/2]
	if start > 0 {
		t.published.expiry.Store(start + int64(t.duration))
	}
}

package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A read at T is in the timestamp cache first, so that no lock is laid at or below T from then on. Then it looks at the locks that are
// there. Their transactions may commit at or below T, and until it is known that they do not, the read waits.
//
// A lock that was prepared above T is in nobody's way, but for uncertainty: its transaction may have committed above T and been
// acknowledged before the read began. A lock that was laid after the read's transaction was first seen here cannot.
//
// The read has every such transaction told to commit above T only, and waits for all answers:
//
//   - It is pending, and stays above T: what it will write is not for this read. And since it was not committed when it was asked, which
//     is after the read came, nobody can have been told that it had. An answer that was given to an earlier read
//     proves only the first: it is enough for a read at a given timestamp without uncertainty.
//   - It is aborted: there is nothing to read.
//   - It is committed above all that matters to a read at a given timestamp: as if it were not there.
//   - It is committed otherwise: the read waits until the locks are versions. A read of the latest state then moves up to the commit, for that
//     may have been acknowledged; others see the version, or find it uncertain.

// lockedReading is what a read needs because of transactions.
type lockedReading struct {
	// context is the request's; nil if it has none.
	context *kvpb.ReadContext
	// own is the reading transaction, zero if it is none; begun is its age.
	own   txn.ID
	begun hlc.Timestamp
	// yields: it gives way to older transactions.
	yields bool
	// movable: what is uncertain is read at a later timestamp.
	movable bool
	// under is the leadership under which it has laid volatile locks here; nil: it has none.
	under *kvpb.Leadership
	// observed: what this node's leaderships gave above it was given after the reading transaction began.
	observed hlc.Timestamp
	// settled is the timestamp of a read of the latest state that has waited for transactions; committed is the highest of the commits for
	// which it waited.
	settled, committed hlc.Timestamp
	// mark is the number of the last push that was sent before the read was registered.
	mark   uint64
	marked bool
}

// plainReading is of reads without a context that have met no lock. It is never changed.
var plainReading lockedReading

// detail makes sure that the read has a lockedReading of its own.
func (rd *read) detail() {
	if rd.lockedReading == &plainReading {
		rd.lockedReading = new(lockedReading)
	}
}

// maxBlockers is for how many transactions a read waits at once. With more it looks for the rest afterwards.
const maxBlockers = 256

func (n *Node) maxBlockers() int {
	if most := n.hooks.maxBlockers; most != 0 {
		return most
	}
	return maxBlockers
}

// checkContext looks at the context of a read.
func (rd *read) checkContext(c *kvpb.ReadContext) *command.Problem {
	own, err := txn.ParseOptionalID(c.Transaction)
	if err != nil {
		return command.Invalid("a read's context: %v", err)
	}
	if l := c.Leadership; l != nil && l.Term == 0 {
		return command.Invalid("a read's context names a leadership without a term")
	}
	rd.detail()
	rd.context, rd.under = c, c.Leadership
	rd.own, rd.begun, rd.movable = own, rpc.FromTimestamp(c.Begun), c.Movable
	rd.uncertain = rpc.FromTimestamp(c.UncertainUntil)
	rd.observed = rpc.FromTimestamp(c.Observed)
	return nil
}

// latest: the read has no timestamp given.
func (rd *read) latest() bool { return rd.at.IsZero() }

// passes says that a lock is not in the way of the read.
func (rd *read) passes(l *lock) bool {
	T := rd.timestamp
	if l.Transaction.ID == rd.own || !l.Blocks(hlc.Max(T, rd.uncertainUntil())) {
		return true
	}
	k := &l.Transaction.Known
	switch {
	case k.State == kvpb.TransactionState_ABORTED:
		return true
	case k.State == kvpb.TransactionState_COMMITTED:
		return !rd.latest() && hlc.Max(T, rd.uncertain).Less(k.Commit)
	case k.Above.Less(T) || k.Mark == 0:
		return false
	case k.Mark > rd.mark:
		return true
	}
	return !rd.latest() && (rd.uncertain.LessEq(T) || rd.uncertain.LessEq(k.Above))
}

// waitForLocksLocked has a read that was placed wait for the transactions in its way, if there are any: then it unlocks and returns true.
func (r *Replica) waitForLocksLocked(rd *read) bool {
	rd.detail()
	if !rd.marked {
		rd.marked, rd.mark = true, r.mu.waits.pushes
	}
	var in []*lock
	seen := map[txn.ID]struct{}{}
	partial := false
	look := func(l *lock) bool {
		if rd.passes(l) {
			return true
		}
		if _, known := seen[l.Transaction.ID]; known {
			return true
		}
		if len(in) == r.node.maxBlockers() {
			partial = true
			return false
		}
		seen[l.Transaction.ID] = struct{}{}
		in = append(in, l)
		return true
	}
	r.eachReadLockLocked(rd, look)
	if len(in) == 0 {
		return false
	}
	if older := rd.yieldsTo(in); older != nil {
		r.mu.Unlock()
		r.endRead(rd, r.conflictWith(rd.pending.Request, []byte(older.Key), older.Transaction.ID))
		return true
	}
	if rd.part != nil && !rd.part.waits() {
		r.mu.Unlock()
		r.exit()
		return true
	}
	q := rd.pending.Request
	if r.mu.waitingReads >= r.node.MaxWaitingReads {
		r.mu.Unlock()
		r.endRead(rd, r.overloaded(q, "reads wait for transactions' locks"))
		return true
	}
	if rd.latest() && !partial {
		// What comes later need not be seen, and would be met again and again.
		rd.settled = rd.timestamp
	}
	waiting := &lockedRead{rd: rd, left: len(in), since: time.Now(),
		conflict: &kvpb.Conflict{Key: []byte(in[0].Key), Transaction: in[0].Transaction.ID.Bytes()}}
	w := &r.mu.waits
	if w.reads == nil {
		w.reads = make(map[*lockedRead]struct{})
	}
	w.reads[waiting] = struct{}{}
	r.mu.waitingReads++
	for _, l := range in {
		b := r.blockerLocked(l.Transaction, r.lockNow())
		b.reads = append(b.reads, waiting)
	}
	var todo lockWork
	r.tendLocked(&todo)
	r.mu.Unlock()
	r.node.Metrics.readsParked.Inc()
	todo.run(r)
	return true
}

// yieldsTo is a lock to which the read gives way; nil if there is none. Only a refresh gives way, if
// it says so (see RefreshRequest), and only to older transactions that are pending: of those that
// push one another the oldest gives way to none, and commits.
func (rd *read) yieldsTo(in []*lock) *lock {
	if !rd.yields || rd.own.IsZero() {
		return nil
	}
	for _, l := range in {
		other := l.Transaction
		if other.Known.State == kvpb.TransactionState_PENDING && !rd.own.SameTransaction(other.ID) &&
			txn.Older(other.Begun, other.ID, rd.begun, rd.own) {
			return l
		}
	}
	return nil
}

// eachReadLockLocked calls look for the locks of what a read reads, until it returns false.
func (r *Replica) eachReadLockLocked(rd *read, look func(*lock) bool) {
	t := &r.mu.locks
	f := rd.command.Footprint(rd.pending.Request)
	for key := range f.Keys {
		if l := t.Get(text(key)); l != nil && !look(l) {
			return
		}
	}
	for start, end := range f.EachSpan {
		t.Ascend(text(start), text(end), look)
	}
}

// resumeLockedRead looks anew for a read that has waited for transactions.
func (r *Replica) resumeLockedRead(rd *read) {
	if !r.goActive(func() {
		r.mu.Lock()
		if r.mu.reign != rd.reign {
			r.mu.Unlock()
			r.refuseRead(rd)
			return
		}
		if rd.latest() && rd.settled.Less(rd.committed) {
			r.node.Metrics.readsMovedCommit.Inc()
		}
		r.registerLocked(rd)
	}) {
		r.endRead(rd, r.overloaded(rd.pending.Request, "reads are being served by this server"))
	}
}

// maxMoves is how often a read is moved to a later timestamp by the server itself.
const maxMoves = 5

// move reads again at the timestamp of what was uncertain, if the client allows it.
func (r *Replica) move(rd *read, at hlc.Timestamp) bool {
	if !rd.movable || rd.latest() || rd.restarts >= maxMoves {
		return false
	}
	rd.restarts++
	rd.term = 0
	rd.at = at
	r.node.Metrics.readsMovedUncertain.Inc()
	leaseTerm, leased := r.group.Lease()
	r.admit(rd, leaseTerm, leased)
	return true
}

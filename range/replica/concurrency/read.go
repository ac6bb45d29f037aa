package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A read at T is in the timestamp cache first, so that no lock is acquired at or below T from then
// on. Then it looks at the locks that there are. Their transactions may commit at or below T, and
// until it is known that they do not, the read waits.
//
// A lock that was prepared above T is in the way for uncertainty only: its transaction may have
// committed above T and been acknowledged before the read began. A lock that was acquired after the
// read's transaction was first seen here cannot.
//
// The read has every such transaction told to commit above T only, and waits for all answers:
//
//   - It is pending, and stays above T: what it will write is not for this read. And since it was
//     not committed when it was asked, which is after the read came, no client can have been told
//     that it had. An answer that was given to an earlier read proves only the first: it is enough
//     for a read at a given timestamp without uncertainty.
//   - It is aborted: there is nothing to read.
//   - It is committed above all that matters to a read at a given timestamp: as if it were not
//     there.
//   - It is committed otherwise: the read waits until the locks are versions. A read of the latest
//     state then moves up to the commit, for that may have been acknowledged; others see the
//     version, or find it uncertain.

// Read is a read as far as locks matter to it. It lives as long as the read, which may wait again
// and again; the first fields are its owner's.
type Read struct {
	// Element is the read. It belongs to the owner.
	Element any
	// Transaction is the read's, zero if it has none; Begun is its age.
	Transaction txn.ID
	Begun       hlc.Timestamp
	// Yields: it gives way to older transactions instead of pushing them.
	Yields bool
	// Deadline is when its caller stops waiting; zero: never.
	Deadline time.Time

	// Latest: no timestamp was asked for. Uncertain is the client's uncertainty limit.
	Latest    bool
	Uncertain hlc.Timestamp
	// Timestamp is what it has in the timestamp cache, and UncertainUntil up to where anything is
	// uncertain. They are set before each search for Blockers.
	Timestamp, UncertainUntil hlc.Timestamp

	// Settled is the timestamp of a read of the latest state that has waited for all transactions
	// in its way; zero: it has not. Committed is the highest of the commits for which it waited.
	Settled, Committed hlc.Timestamp
	// Conflict is what it waited for last.
	Conflict *kvpb.Conflict
	// mark is the number of the last push that was sent before the read was registered.
	mark   uint64
	marked bool
}

func (r *Read) age() age { return age{r.Begun, r.Transaction} }

// passes says that a lock is not in the way of the read.
func (r *Read) passes(l *Lock) bool {
	T := r.Timestamp
	if l.Transaction.ID == r.Transaction || !l.Blocks(hlc.Max(T, r.UncertainUntil)) {
		return true
	}
	k := &l.Transaction.Known
	switch {
	case k.State == kvpb.TransactionState_ABORTED:
		return true
	case k.State == kvpb.TransactionState_COMMITTED:
		return !r.Latest && hlc.Max(T, r.Uncertain).Less(k.Commit)
	case k.Above.Less(T) || k.Mark == 0:
		return false
	case k.Mark > r.mark:
		return true
	}
	return !r.Latest && (r.Uncertain.LessEq(T) || r.Uncertain.LessEq(k.Above))
}

// Blockers are the transactions in the way of a read, by one lock of each, as far as the owner has
// looked for them (Key, Span).
type Blockers struct {
	Locks []*Lock
	table *Table
	// most is for how many transactions a read waits at once.
	most int
	read *Read
	// seen are the transactions of Locks.
	seen map[*Transaction]struct{}
	// more: there are more than a read waits for at once.
	more bool
}

// Key looks at a key that is read. It returns false if there is no point in looking further.
func (b *Blockers) Key(key []byte) bool {
	l := b.table.Get(text(key))
	return l == nil || b.look(l)
}

// Span looks at a span that is read: all keys of [start, end); an empty end is none.
func (b *Blockers) Span(start, end []byte) bool {
	b.table.Each(text(start), text(end), b.look)
	return !b.more
}

func (b *Blockers) look(l *Lock) bool {
	if b.read.passes(l) {
		return true
	}
	if _, known := b.seen[l.Transaction]; known {
		return true
	}
	if len(b.Locks) == b.most {
		b.more = true
		return false
	}
	if b.seen == nil {
		b.seen = make(map[*Transaction]struct{})
	}
	b.seen[l.Transaction] = struct{}{}
	b.Locks = append(b.Locks, l)
	return true
}

// Yields is the lock to which the read gives way; nil if there is none. It gives way only if it is
// to (see RefreshRequest), and only to older transactions that are pending: of those that push one
// another the oldest gives way to none, and commits.
func (b *Blockers) Yields() *Lock {
	r := b.read
	if !r.Yields || r.Transaction.IsZero() {
		return nil
	}
	for _, l := range b.Locks {
		other := l.Transaction
		if other.Known.State == kvpb.TransactionState_PENDING &&
			!r.Transaction.SameTransaction(other.ID) &&
			txn.Older(other.Begun, other.ID, r.Begun, r.Transaction) {
			return l
		}
	}
	return nil
}

// readWait is one wait of a read, for some transactions.
type readWait struct {
	read *Read
	// left is for how many of them it still waits.
	left int
	// over: it does not wait any more.
	over  bool
	since time.Time
}

// Reads are the reads of a partition that wait.
type Reads struct {
	metrics *Metrics
	waiting map[*readWait]struct{}
}

// wait has a read wait for the transactions in its way, of which there are some.
func (rs *Reads) wait(b *Blockers, now time.Time) *readWait {
	r := b.read
	if r.Latest && !b.more {
		// What comes later need not be seen, and would be met again and again.
		r.Settled = r.Timestamp
	}
	first := b.Locks[0]
	r.Conflict = &kvpb.Conflict{Key: []byte(first.Key), Transaction: first.Transaction.ID.Bytes()}
	waiting := &readWait{read: r, left: len(b.Locks), since: now}
	if rs.waiting == nil {
		rs.waiting = make(map[*readWait]struct{})
	}
	rs.waiting[waiting] = struct{}{}
	rs.metrics.readsWaited.Inc()
	return waiting
}

// Len is the number of reads that wait.
func (rs *Reads) Len() int { return len(rs.waiting) }

// Each calls visit for the reads that wait.
func (rs *Reads) Each(visit func(*Read)) {
	for l := range rs.waiting {
		visit(l.read)
	}
}

// leave takes a read out of those that wait.
func (rs *Reads) leave(l *readWait) {
	l.over = true
	delete(rs.waiting, l)
	rs.metrics.lockWaits.Observe(since(l.since))
}

// wake returns those of some reads that wait for no other transaction than of, and has all of them
// wait for of no longer.
func (rs *Reads) wake(of *Transaction, waiting *[]*readWait) (ready []*Read) {
	for _, l := range *waiting {
		if l.over {
			continue
		}
		if of.Known.State == kvpb.TransactionState_COMMITTED {
			l.read.Committed = hlc.Max(l.read.Committed, of.Known.Commit)
		}
		if l.left--; l.left == 0 {
			rs.leave(l)
			ready = append(ready, l.read)
		}
	}
	*waiting = nil
	return ready
}

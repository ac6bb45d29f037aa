package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A read at T enters the timestamp cache first, so that no lock is acquired at or below T from then
// on. Then it looks at the existing locks. Their transactions may commit at or below T, and the
// read waits until it is known that they do not.
//
// A lock that was prepared above T matters only for uncertainty: its transaction may have committed
// above T and been acknowledged before the read began. A lock that was acquired after the read's
// transaction was first seen here cannot matter.
//
// The read has every such transaction pushed to commit above T only, and waits for all answers:
//
//   - The transaction is pending, and stays above T: the read need not see its writes. And since
//     the transaction was not committed when the push was sent, which is after the read came, no
//     client can have been told of a commit. The answer to an earlier read's push proves only the
//     first: it suffices for a read at a given timestamp without uncertainty.
//   - It is aborted: there is nothing to read.
//   - It is committed above all timestamps that matter to a read at a given timestamp: the read
//     ignores it.
//   - Otherwise it is committed, and the read waits until the locks are versions. A read of the
//     latest state then moves up to the commit, which may have been acknowledged; other reads see
//     the version, or find it uncertain.

// Read is a read as far as locks matter to it. It lives as long as the read, which may wait several
// times. The first fields belong to its owner.
type Read struct {
	// Element is the owner's read; this package does not use it.
	Element any
	// Transaction is the read's transaction, zero if it has none; Begun is the transaction's start.
	Transaction txn.ID
	Begun       hlc.Timestamp
	// Yields is set if the read gives way to older transactions instead of pushing them.
	Yields bool
	// Deadline is when its caller stops waiting; zero: never.
	Deadline time.Time

	// Latest is set if the read names no timestamp. Uncertain is the client's uncertainty limit.
	Latest    bool
	Uncertain hlc.Timestamp
	// Timestamp is the read's timestamp in the timestamp cache, and UncertainUntil the limit of its
	// uncertainty. They are set before each search for Blockers.
	Timestamp, UncertainUntil hlc.Timestamp

	// Settled is the timestamp of a read of the latest state that has waited for all transactions
	// in its way; zero: it has not. Committed is the highest of the commits for which it waited.
	Settled, Committed hlc.Timestamp
	// Conflict describes the lock for which it waited last.
	Conflict *kvpb.Conflict
	// mark is the number of the last push that was sent before the read was registered.
	mark   uint64
	marked bool
}

func (r *Read) age() age { return age{r.Begun, r.Transaction} }

// passes reports that a lock is not in the way of the read.
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

// Blockers holds the transactions in the way of a read, by one lock of each, among the keys and
// spans that the owner has looked at (Key, Span).
type Blockers struct {
	Locks []*Lock
	table *Table
	// most bounds the transactions for which a read waits at once.
	most int
	read *Read
	// seen holds the transactions of Locks.
	seen map[*Transaction]struct{}
	// more is set if there are more than that.
	more bool
}

// Key looks at a key that is read. It returns false if the caller need not look further.
func (b *Blockers) Key(key []byte) bool {
	l := b.table.Get(text(key))
	return l == nil || b.look(l)
}

// Span looks at a span that is read: all keys of [start, end); an empty end means no bound.
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

// Yields returns the lock to which the read gives way, or nil. A read gives way only if its request
// asks for that (RefreshRequest), and only to older pending transactions: of transactions that push
// one another the oldest gives way to no other, and commits.
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
	// left counts the transactions for which it still waits.
	left int
	// over is set when it does not wait any more.
	over  bool
	since time.Time
}

// Reads holds the reads of a partition that wait.
type Reads struct {
	metrics *Metrics
	waiting map[*readWait]struct{}
}

// wait makes a read wait for the transactions in its way; there must be at least one.
func (rs *Reads) wait(b *Blockers, now time.Time) *readWait {
	r := b.read
	if r.Latest && !b.more {
		// Later commits need not be seen, and looking for them could go on for ever.
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

// leave removes a read from those that wait.
func (rs *Reads) leave(l *readWait) {
	l.over = true
	delete(rs.waiting, l)
	rs.metrics.lockWaits.Observe(since(l.since))
}

// wake ends the wait of some reads for the transaction of, and returns those that wait for no other
// transaction.
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

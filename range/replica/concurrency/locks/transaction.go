package locks

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Transaction is a transaction that has locks here. It leaves the table with the last of them.
type Transaction[W any] struct {
	txn.Info
	// Known is what its coordinator has said of it.
	Known Known
	// Acquired is when the latest of its locks was acquired, in nanoseconds since the epoch by the
	// leader's physical clock.
	Acquired int64

	// namesake is the next one with the same id, and another anchor (Table.byID).
	namesake *Transaction[W]

	locks   []*Lock[W]
	waiters []waiter[W]
	// spans counts those of its locks that are of spans.
	spans int
}

// Known is what is known of how a transaction stands. It belongs to the table's owner.
type Known struct {
	// State is COMMITTED or ABORTED if that was decided, and will be so for ever.
	State kvpb.TransactionState
	// Reason is why an ABORTED one is, Wounder for which transaction, and Wanted over which key, if
	// that is known.
	Reason  kvpb.AbortReason
	Wounder txn.ID
	Wanted  txn.Wanted
	// Limit is the limit that an ABORTED one was beyond, if that is why.
	Limit time.Duration
	// Commit is the commit timestamp of a COMMITTED one.
	Commit hlc.Timestamp
	// Above is the timestamp above which a PENDING one commits, if it does; zero if nothing is
	// known.
	Above hlc.Timestamp
	// Gone is since when it is known that its coordinator is gone for good; zero if it is there,
	// for all that is known.
	Gone time.Time
	// Mark numbers the push that said so, by when it was sent: the transaction was not committed
	// then.
	Mark uint64
}

// Locks is the number of its locks, of keys and of spans.
func (x *Transaction[W]) Locks() int { return len(x.locks) }

// Each calls visit for its locks, in no certain order, until it returns false. visit must not
// change the table.
func (x *Transaction[W]) Each(visit func(*Lock[W]) bool) {
	for _, l := range x.locks {
		if !visit(l) {
			return
		}
	}
}

// Waiting is the number of its waiters.
func (x *Transaction[W]) Waiting() int { return len(x.waiters) }

// EachWaiter calls visit for what waits for one of its locks, in the order in which it came.
func (x *Transaction[W]) EachWaiter(visit func(key string, w W)) {
	for _, w := range x.waiters {
		visit(w.lock.Key, w.waits)
	}
}

// Transaction is the transaction with an id and an anchor; nil if it has no lock here.
func (t *Table[W]) Transaction(of *txn.Info) *Transaction[W] {
	x := t.byID[of.ID]
	for x != nil && !x.SameAnchor(of) {
		x = x.namesake
	}
	return x
}

// EachNamed calls visit for the transactions with an id, of which there is one, or several with
// different anchors. visit must not change the table.
func (t *Table[W]) EachNamed(id txn.ID, visit func(*Transaction[W])) {
	for x := t.byID[id]; x != nil; x = x.namesake {
		visit(x)
	}
}

// HasTransaction says whether a transaction is in the table: it has locks, and the table is the one
// that it was found in.
func (t *Table[W]) HasTransaction(x *Transaction[W]) bool { return t.Transaction(&x.Info) == x }

// Transactions is their number.
func (t *Table[W]) Transactions() int { return t.transactions }

// EachTransaction calls visit for the transactions that have locks here, in no certain order, until
// it returns false. visit must not change the table.
func (t *Table[W]) EachTransaction(visit func(*Transaction[W]) bool) {
	for _, x := range t.byID {
		for ; x != nil; x = x.namesake {
			if !visit(x) {
				return
			}
		}
	}
}

// enter is the transaction with an id and an anchor, which is in the table from here on.
func (t *Table[W]) enter(of *txn.Info) *Transaction[W] {
	x := t.Transaction(of)
	if x == nil {
		x = &Transaction[W]{Info: *of, namesake: t.byID[of.ID]}
		t.byID[of.ID] = x
		t.transactions++
	}
	return x
}

// leave takes out a transaction that has no lock any more.
func (t *Table[W]) leave(x *Transaction[W]) {
	t.transactions--
	first := t.byID[x.ID]
	switch {
	case first != x:
		before := first
		for before.namesake != x {
			before = before.namesake
		}
		before.namesake = x.namesake
	case x.namesake != nil:
		t.byID[x.ID] = x.namesake
	default:
		delete(t.byID, x.ID)
	}
	x.namesake = nil
}

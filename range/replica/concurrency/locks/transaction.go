package locks

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Transaction is a transaction with locks here. It leaves the table with its last lock.
type Transaction[W any] struct {
	txn.Info
	// Known is what its coordinator has said about it.
	Known Known
	// Acquired is when the latest of its locks was acquired, in nanoseconds since the epoch by the
	// leader's physical clock.
	Acquired int64

	// namesake is the next transaction with the same id and another anchor (Table.byID).
	namesake *Transaction[W]

	locks   []*Lock[W]
	waiters []waiter[W]
	// spans counts its span locks.
	spans int
}

// Known is the known state of a transaction. It belongs to the table's owner.
type Known struct {
	// State is COMMITTED or ABORTED if that was decided, which is final.
	State kvpb.TransactionState
	// Reason is why an ABORTED transaction was aborted, Wounder for which transaction, and Wanted
	// over which key, if that is known.
	Reason  kvpb.AbortReason
	Wounder txn.ID
	Wanted  txn.Wanted
	// Limit is the limit that an ABORTED transaction exceeded, if that is the reason.
	Limit time.Duration
	// Commit is the commit timestamp of a COMMITTED transaction.
	Commit hlc.Timestamp
	// Above is a timestamp above which a PENDING transaction commits, if it does; zero if none is
	// known.
	Above hlc.Timestamp
	// Gone is since when the transaction's coordinator is known to be gone for good; zero if it is
	// not.
	Gone time.Time
	// Mark is the number of the push whose answer this is. Pushes are numbered in the order in
	// which they are sent; the transaction was not committed when this one was sent.
	Mark uint64
}

// Locks returns the number of its locks, of keys and of spans.
func (x *Transaction[W]) Locks() int { return len(x.locks) }

// Spans returns how many of its locks are span locks.
func (x *Transaction[W]) Spans() int { return x.spans }

// Each calls visit for its locks, in no certain order, until it returns false. visit must not
// change the table.
func (x *Transaction[W]) Each(visit func(*Lock[W]) bool) {
	for _, l := range x.locks {
		if !visit(l) {
			return
		}
	}
}

// EachSpan calls visit for the span locks of a transaction, in no certain order. visit must not
// change the table.
func (x *Transaction[W]) EachSpan(visit func(*Lock[W])) {
	if x.spans == 0 {
		return
	}
	for _, l := range x.locks {
		if l.Span {
			visit(l)
		}
	}
}

// Waiting returns the number of its waiters.
func (x *Transaction[W]) Waiting() int { return len(x.waiters) }

// EachWaiter calls visit for the requests that wait for one of its locks, in the order in which
// they came.
func (x *Transaction[W]) EachWaiter(visit func(key string, w W)) {
	for _, w := range x.waiters {
		visit(w.lock.Key, w.waits)
	}
}

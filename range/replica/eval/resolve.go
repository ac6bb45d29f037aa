package eval

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// Resolving releases the locks of a decided transaction: those of a committed one become versions
// at the commit timestamp, those of an aborted one are deleted. A lock and its version change in
// one entry. Resolving is idempotent: for a lock that is gone there is nothing to do.
//
// The versions need not be among the pending writes: until they are applied, a request that would
// meet a version there meets the lock first.
//
// A lock that was prepared above the commit timestamp came late: a repeated Prepare acquired it
// when the transaction was over. What the transaction wrote there is a version already, and the
// lock is just deleted.

// How much one entry resolves, and how much it resolves for a transaction that nothing waits for,
// while others use the node or not (see intent_resolution.go).
const (
	LocksPerEntry = 1000
)

// resolve releases the locks of the transactions that a request names. Locks that do not fit into
// the entry are released later (see intent_resolution.go); the request waits for that, unless it is
// to be done in the background.
func (e *evaluation) resolve(w *write) error {
	r, q := e.r, w.pending.Request
	b := resolution{e: e, room: concurrency.UnhurriedBytes, yields: e.Within == nil}
	if e.Within == nil {
		e.cancelAborted(e.Resolutions...)
	} else {
		b.within, b.some = keys.Span{Start: e.Within.Start, End: e.Within.End}, true
	}
	for _, x := range e.Resolutions {
		if err := b.transaction(x); err != nil {
			return e.wrote(w, true, err, nil)
		}
		if b.more == nil {
			continue
		}
		if b.resolved == 0 && e.ends > 0 {
			e.again = append(e.again, *w) // others fill the entry
			return nil
		}
		if b.some {
			e.MoreWithin, b.more = true, nil
			break
		}
		if !e.Background {
			break
		}
		e.work.Resolve, b.more = append(e.work.Resolve, b.more.Transaction), nil
	}
	w.x.resolved += uint64(b.resolved)
	w.x.last = max(w.x.last, b.last)
	// The lock was acquired a moment ago, and can be released when it is applied.
	wait, until := b.inFlight, concurrency.UntilApplied
	if b.more != nil {
		wait, until = b.more, concurrency.UntilGone
	}
	switch {
	case e.over:
		e.refuse(w, r.Refuse.NotLeader(q))
	case wait != nil:
		r.Mu.Lock()
		if !r.Mu.Leadership.Is(e.epoch) || !r.Mu.Locks.Has(wait) ||
			wait.InFlight() != (until == concurrency.UntilApplied) {
			r.Mu.Unlock()
			e.again = append(e.again, *w)
			return nil
		}
		refusal := e.waitLocked(w, wait, wait.Key, until)
		r.Mu.Unlock()
		if refusal != nil {
			e.refuse(w, refusal)
		}
	default:
		e.Ended = w.x.resolved
		e.answerRead(w, e.Respond(&e.Result, q, hlc.Timestamp{}), w.x.last)
	}
	return nil
}

// resolution fills an entry with the release of locks.
type resolution struct {
	e *evaluation
	// resolved counts the locks in the entry, bytes their size; the entry has room for room bytes.
	resolved, bytes, room int
	// some is set if only the locks within the spans are released, and the outcome counts for these
	// alone: the client that reports it may write there, and perhaps not elsewhere.
	some   bool
	within keys.Span
	// yields is set if locks that intent resolution is releasing are left to it.
	yields bool
	// more is the first lock that finds no room; nil if the entry is not full.
	more *lock
	// last is the newest proposal on its way that releases one of the locks asked for.
	last uint64
	// inFlight is a lock that cannot be released yet.
	inFlight *lock
}

// transaction releases the locks of one transaction, as far as there is room.
//
// INVARIANT: locks are released only by what was decided at the anchor that they name. A client
// that may write that key may decide so; a record of the same id at another key says nothing of
// them.
func (b *resolution) transaction(of *kvpb.Resolution) error {
	e, r := b.e, b.e.r
	status := of.Status
	commit := wire.FromTimestamp(status.GetTimestamp())
	committed := status.GetState() == kvpb.TransactionState_COMMITTED
	r.Mu.Lock()
	if !r.Mu.Leadership.Is(e.epoch) {
		r.Mu.Unlock()
		e.over = true
		return nil
	}
	x := decided(&r.Mu.Locks, of)
	if x == nil {
		r.Mu.Unlock()
		return nil
	}
	if !b.some {
		r.Mu.Locks.Pushes.Learn(x, status, 0)
	}
	if b.yields && r.Mu.Locks.Resolutions.Resolving(x) {
		x.Each(func(l *lock) bool {
			if !l.InFlight() {
				b.more = l
			}
			return b.more == nil
		})
		if b.more != nil {
			r.Mu.Unlock()
			return nil
		}
	}
	var ended, volatile []*lock
	x.Each(func(l *lock) bool {
		switch {
		case b.some && !b.within.Contains([]byte(l.Key)):
		case l.Releasing():
			b.last = max(b.last, l.Sequence)
		case l.InFlight():
			b.inFlight = l
		case l.Applied.Volatile:
			volatile = append(volatile, l)
		case b.resolved >= LocksPerEntry ||
			(b.resolved > 0 && b.bytes+concurrency.LockBytes(l, committed) > b.room) ||
			(e.ends > 0 && e.ends+concurrency.LockBytes(l, committed) > r.Node.MaxEntryBytes):
			b.more = l
			return false
		default:
			b.resolved++
			b.bytes += concurrency.LockBytes(l, committed)
			e.ends += concurrency.LockBytes(l, committed)
			ended = append(ended, l)
		}
		return true
	})
	for _, l := range ended {
		r.Mu.Locks.MarkReleased(l, e.proposal.Sequence)
		switch {
		case !committed || commit.Less(l.Applied.Prepared):
		case !l.Applied.Writes():
			// The lock was a read as of the commit timestamp, which may be above this node's clock.
			r.Mu.Cache.Record([]byte(l.Key), commit)
		case l.Applied.Prepared.Less(commit):
			r.Mu.Foreign = hlc.Max(r.Mu.Foreign, commit)
		}
	}
	for _, l := range volatile {
		e.releaseLocked(l)
	}
	r.Mu.Unlock()
	if len(ended) == 0 {
		return nil
	}
	b.last = max(b.last, e.proposal.Sequence)
	e.transactional()
	if committed {
		e.highest = hlc.Max(e.highest, commit)
	}
	// The engine is read in the order of the keys. Only this proposal changes the locks that were
	// marked.
	slices.SortFunc(ended, func(a, b *lock) int { return strings.Compare(a.Key, b.Key) })
	for _, l := range ended {
		if err := b.end(l, committed, commit); err != nil {
			return err
		}
	}
	return nil
}

// decided returns the transaction with locks here that a resolution names; nil if there is none. A
// resolution that names no anchor names none of several transactions with its id.
func decided(locks *concurrency.Manager, of *kvpb.Resolution) (found *concurrency.Transaction) {
	several := false
	locks.EachNamed(txn.ID(of.Transaction), func(x *concurrency.Transaction) {
		if decides(of, &x.Info) {
			several, found = found != nil, x
		}
	})
	if several {
		return nil
	}
	return found
}

// end puts the release of one lock into the batch.
func (b *resolution) end(l *lock, committed bool, commit hlc.Timestamp) error {
	e, m := b.e, &b.e.r.Node.Metrics.Transactions
	key := []byte(l.Key)
	switch {
	case !committed:
		m.LocksAborted.Inc()
	case commit.Less(l.Applied.Prepared):
		m.LocksLate.Inc()
	default:
		m.LocksCommitted.Inc()
		if l.Applied.Writes() {
			if err := e.turnIntoVersion(key, l, commit); err != nil {
				return err
			}
		}
	}
	return e.batch.Delete(txn.LockKey(e.InternalKey(key)), nil)
}

// turnIntoVersion writes the version of a committed lock.
func (e *evaluation) turnIntoVersion(key []byte, l *lock, commit hlc.Timestamp) error {
	op, request, closer, err := e.CommittedVersion(key, l.Transaction.ID, l.Applied.Prepared, commit)
	if err != nil {
		return err
	}
	defer closer.Close()
	return e.stage(&op, commit, request)
}

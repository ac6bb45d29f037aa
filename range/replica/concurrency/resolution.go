package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Resolution releases the locks of a transaction whose outcome is known, entry by entry. A
// transaction may have tens of thousands of locks in a partition, and turning all of them into
// versions as fast as possible would take processors and disks from everything else. So if it has
// many locks here and nothing waits for them, the entries are small, and each is followed by a
// pause longer than the entry took. The resolutions of a node share this pacing, so the number of
// partitions does not matter. A request that comes to wait ends the pauses for good, because it may
// meet other locks next. Only requests of large transactions do not: the pauses exist to hold those
// back; for them the pauses just become shorter.
//
// A resolution that pauses releases fewer locks than can be acquired in the meantime. So only a few
// transactions per node pause at a time, and none in partitions that have many locks already, so
// that locks do not pile up.
type Resolution struct {
	of *Transaction
	// urgent is set once a request has waited for the transaction.
	urgent bool
	// paced is set if its transaction is one of those that pause on this node.
	paced bool
	// timer ends its pause; nil: it has not paused yet. pauses is set during a pause.
	timer  *time.Timer
	pauses bool
}

const (
	// A resolution pauses from LargeLocks locks in a partition on, or from largeBytes of their
	// size. maxPaced bounds the transactions of a node that pause at a time.
	LargeLocks = 2000
	largeBytes = 512 << 10
	maxPaced   = 2
	// In a partition with more than one part in crowdedPart of its allowed locks, resolutions pause
	// no more than necessary; with more than one part in fullPart, not at all.
	crowdedPart = 8
	fullPart    = 2
)

// How many bytes of locks one entry releases: for a transaction for which a request waits, for
// another one, and for another one on a loaded node.
const (
	urgentBytes = 256 << 10
	// UnhurriedBytes also applies to an entry that a client has asked for.
	UnhurriedBytes = 64 << 10
	loadedBytes    = 12 << 10
)

// Transaction returns the transaction whose locks are released.
func (x *Resolution) Transaction() *Transaction { return x.of }

// Resolutions holds the resolutions under way.
type Resolutions struct {
	config   *Config
	owner    Owner
	table    *Table
	pushes   *Pushes
	underWay map[*Transaction]*Resolution
}

// Start begins to release the locks of a transaction whose outcome is known. It returns the
// resolution if its next entry is due; nil: there is nothing to do, or the resolution is under way
// already.
func (rs *Resolutions) Start(of *Transaction) *Resolution {
	if !rs.table.HasTransaction(of) || of.Known.State == kvpb.TransactionState_PENDING {
		return nil
	}
	x := rs.underWay[of]
	switch {
	case x == nil:
		if rs.underWay == nil {
			rs.underWay = make(map[*Transaction]*Resolution)
		}
		x = &Resolution{of: of, paced: large(of) && rs.config.Paced.Join(of.ID)}
		rs.underWay[of] = x
		return x
	case !x.pauses || !rs.urgent(x, of):
		return nil
	}
	x.pauses = false
	x.timer.Stop()
	return x
}

// Resolving reports that a resolution of a transaction's locks is under way.
func (rs *Resolutions) Resolving(of *Transaction) bool { return rs.underWay[of] != nil }

// NextEntry returns what the next entry of a resolution does: the outcome, nil if the resolution is
// over, and how many bytes of locks it releases (LockBytes).
func (rs *Resolutions) NextEntry(x *Resolution, now time.Time) (outcome *kvpb.TransactionStatus,
	bytes int) {
	of := x.of
	if rs.underWay[of] != x || !rs.table.HasTransaction(of) ||
		of.Known.State == kvpb.TransactionState_PENDING {
		return nil, 0
	}
	k := &of.Known
	bytes, _ = rs.pacing(x, of, now)
	return &kvpb.TransactionStatus{State: k.State, Timestamp: wire.ToTimestamp(k.Commit),
		Reason: k.Reason, Wounder: k.Wounder.Bytes(),
		WantedKey: k.Wanted.Key, WantedKeyspace: uint32(k.Wanted.Keyspace),
		LimitMicros: uint64(k.Limit.Microseconds())}, bytes
}

// EntryDone notes that an entry of a resolution, requested at the time asked, is applied, or will
// not be. more is set if another entry is needed. EntryDone returns true if that entry is due now;
// otherwise the resolution is over, or the owner is called after a pause.
func (rs *Resolutions) EntryDone(x *Resolution, more bool, asked, now time.Time) (due bool) {
	of := x.of
	if rs.underWay[of] != x {
		return false
	}
	if !more || !rs.table.HasTransaction(of) {
		delete(rs.underWay, of)
		rs.release(x)
		return false
	}
	_, by := rs.pacing(x, of, now)
	if by == admission.Urgent {
		return true
	}
	x.pauses = true
	pause := rs.config.Pacer.Pause(now, now.Sub(asked), by)
	x.timer = time.AfterFunc(pause, func() { rs.owner.ContinueResolution(x) })
	return false
}

// EndPause ends the pause of a resolution. It returns true if the next entry is due.
func (rs *Resolutions) EndPause(x *Resolution) (due bool) {
	due = rs.underWay[x.of] == x && x.pauses
	x.pauses = x.pauses && !due
	return due
}

// endEpoch ends all resolutions.
func (rs *Resolutions) endEpoch() {
	for _, x := range rs.underWay {
		rs.release(x)
	}
	rs.underWay = nil
}

// release releases the timer and the budget of a resolution that is over.
func (rs *Resolutions) release(x *Resolution) {
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.paced {
		x.paced = false
		rs.config.Paced.Leave(x.of.ID)
	}
}

// urgent reports whether a request for which the resolution must not pause waits for the
// transaction's locks, or has waited.
func (rs *Resolutions) urgent(x *Resolution, of *Transaction) bool {
	if x.urgent || rs.config.manualTime() {
		return true
	}
	x.urgent = rs.pushes.Hurried(of)
	return x.urgent
}

// pacing returns how many bytes the next entry releases, and with which priority it is paced.
func (rs *Resolutions) pacing(x *Resolution, of *Transaction, now time.Time) (bytes int,
	by admission.Priority) {
	all := rs.table.Len()
	switch {
	case rs.urgent(x, of):
		return urgentBytes, admission.Urgent
	case !x.paced || all > rs.config.MaxLocks/fullPart:
		return UnhurriedBytes, admission.Urgent
	case all > rs.config.MaxLocks/crowdedPart || !rs.config.Load.Busy(now):
		return UnhurriedBytes, admission.Awaited
	case awaited(of):
		return loadedBytes, admission.Awaited
	}
	return loadedBytes, admission.Low
}

// large reports that a transaction has many locks in the partition.
func large(of *Transaction) bool {
	if of.Locks() >= LargeLocks {
		return true
	}
	bytes := 0
	of.Each(func(l *Lock) bool {
		if !l.InFlight() {
			bytes += LockBytes(l, true)
		}
		return bytes < largeBytes
	})
	return bytes >= largeBytes
}

// awaited reports whether a write waits for a transaction's locks.
func awaited(of *Transaction) (any bool) {
	of.EachWaiter(func(_ string, w *Waiter) { any = any || w.Kind != Resolve })
	return any
}

package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Resolution releases the locks of a transaction whose outcome is known, entry by entry. A
// transaction may have tens of thousands of locks in a partition, and to turn all of them into
// versions as fast as can be would keep processors and disks from everything else. So if it has
// many here and nothing waits for it, the entries are small, and after each comes a pause that is
// longer than the entry took; and the resolutions of a node pause by turns, so that it does not
// matter in how many partitions. What comes to wait ends the pauses for good: it may meet other
// locks next. Only large transactions do not: they are what is held back, and not those for which
// it is; the pauses become shorter for them.
//
// What pauses releases fewer locks than could be acquired in the meantime. So only few transactions
// do so at a time on a node, and none where there are many locks already: they must not pile up.
type Resolution struct {
	of *Transaction
	// urgent: something has waited for it.
	urgent bool
	// paced: its transaction is one of those that pause on this node.
	paced bool
	// timer ends its pause; nil: it has had none. pauses: it does so now.
	timer  *time.Timer
	pauses bool
}

const (
	// LargeLocks and largeBytes are from how many locks in a partition on a resolution pauses, and
	// maxPaced is for how many transactions of a node at a time.
	LargeLocks = 2000
	largeBytes = 512 << 10
	maxPaced   = 2
	// A partition with more locks than one part in crowdedPart of what it may have makes way no
	// more than need be, and one with more than one in fullPart not at all.
	crowdedPart = 8
	fullPart    = 2
)

// What one entry releases: of a transaction that something waits for, of one that nothing waits
// for, and of that if the node is loaded.
const (
	urgentBytes = 256 << 10
	// UnhurriedBytes is also for an entry that a client has asked for.
	UnhurriedBytes = 64 << 10
	loadedBytes    = 12 << 10
)

// Transaction is whose locks the resolution releases.
func (x *Resolution) Transaction() *Transaction { return x.of }

// Resolutions are of the transactions whose locks are being released because their outcome is
// known.
type Resolutions struct {
	config   *Config
	owner    Owner
	table    *Table
	pushes   *Pushes
	underWay map[*Transaction]*Resolution
}

// Start has the locks of a transaction released whose outcome is known: it returns the
// resolution whose next entry is due; nil: there is nothing to do, or it is being done.
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

// Resolving says that a resolution of a transaction's locks is under way.
func (rs *Resolutions) Resolving(of *Transaction) bool { return rs.underWay[of] != nil }

// NextEntry is what the next entry of a resolution does: the outcome, nil if it is over, and how
// many bytes of locks it releases (LockBytes).
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

// EntryDone notes that an entry of a resolution, which was asked for at a time, is applied, or that
// there will be none. more: there are locks left for which there is to be another one. It returns
// true if that is due now; otherwise the resolution is over, or the owner is called after a pause.
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

// EndPause says that the pause of a resolution is over. It returns true if its next entry is due.
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

// release lets go of what a resolution holds that is not among the resolutions any more.
func (rs *Resolutions) release(x *Resolution) {
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.paced {
		x.paced = false
		rs.config.Paced.Leave(x.of.ID)
	}
}

// urgent says whether anything waits for the transaction's locks for which there is to be no pause,
// or has done so.
func (rs *Resolutions) urgent(x *Resolution, of *Transaction) bool {
	if x.urgent || rs.config.manualTime() {
		return true
	}
	x.urgent = rs.pushes.Hurried(of)
	return x.urgent
}

// pacing is how many bytes the next entry releases, and with what priority it is paced.
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

// large says that a transaction has many locks in the partition.
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

// awaited says whether any write waits for a transaction's locks.
func awaited(of *Transaction) (any bool) {
	of.EachWaiter(func(_ string, w *Waiter) { any = any || w.Kind != Resolve })
	return any
}

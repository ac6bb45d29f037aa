package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Reads of changes.
//
// What is closed at a replica, below all locks in the span that were prepared at or below it, is
// resolved: no version of the span is written there any more, by a transaction neither. So a read
// of the versions up to there is complete for ever, and the feed goes on above it. That is the
// timestamp at which any replica reads (closed_read.go), and a leader too chooses it like that: a
// feed that follows the present must not push the transactions and writes of the present.
//
// A request may be held while there is nothing to answer with. That nothing was written is known
// without reading the engine: no version lies above the highest applied timestamp. Otherwise what
// has been resolved meanwhile is read, as soon as it has all that is applied by now, or a step of
// it.
//
// INVARIANT: the garbage collection threshold is compared with the timestamp above which versions
// were asked for, after the engine was read: what is above it, and not collected before, is
// complete.

// changesReading is what a read of changes wants, and how far it has got while it was held.
type changesReading struct {
	// after is the timestamp above which versions are wanted.
	after hlc.Timestamp
	// quiet is up to where it is known that there are none; at or above after.
	quiet hlc.Timestamp
	// until is how long it may be held.
	until time.Time
	// idle: it waits for something to be written. last: it is answered now, with nothing if there is
	// nothing.
	idle, last bool
}

const (
	// changesStep is how much has to be resolved before it is read, if it is not all that was
	// applied.
	changesStep = 100 * time.Millisecond
	// changesCheck is how often a read of changes looks whether that is closed.
	changesCheck = 50 * time.Millisecond
)

// startChanges notes what a read of changes wants.
func (r *Replica) startChanges(rd *read, of *command.Changing) {
	if of == nil {
		return
	}
	c := &changesReading{after: of.After, quiet: of.After, until: r.node.LockNow()}
	if rd.latest() && rd.pending.Request.ReplicaRead != nil {
		c.until = c.until.Add(of.Idle)
		if end := deadline(&rd.pending); !end.IsZero() && end.Before(c.until) {
			c.until = end
		}
	}
	rd.changes = c
}

// oldest is the lowest timestamp of which the state is read, by a read at a timestamp. Up to where
// it is quiet there was never anything to be collected.
func (rd *read) oldest(at hlc.Timestamp) hlc.Timestamp {
	if rd.changes != nil {
		return rd.changes.quiet
	}
	return at
}

// quietUpTo is up to where it is known that there are no changes.
func (rd *read) quietUpTo() hlc.Timestamp {
	if rd.changes == nil {
		return hlc.Timestamp{}
	}
	return rd.changes.quiet
}

// idleLocked says that a read waits for something to be written, and nothing was.
func (rd *read) idleLocked(highest hlc.Timestamp) bool {
	return rd.changes != nil && rd.changes.idle && highest.LessEq(rd.changes.quiet)
}

// holdChangesLocked says whether a read of changes is served now. ok: its timestamp is chosen.
// Otherwise it waits for as long as patience, and looks every check.
func (r *Replica) holdChangesLocked(rd *read, ok bool,
	patience time.Duration) (serve bool, _, check time.Duration) {
	c := rd.changes
	c.idle = false
	if !rd.latest() {
		return ok, patience, closedCheck
	}
	left := c.until.Sub(r.node.LockNow())
	c.last = left <= 0 || r.feedsHeldLocked()
	if !ok {
		if c.last && c.after.Less(c.quiet) {
			rd.timestamp = c.quiet // there was nothing, and that is an answer
			return true, 0, 0
		}
		return false, max(patience, left), changesCheck
	}
	highest := r.mu.applied.Highest
	if highest.LessEq(c.quiet) {
		c.quiet = rd.timestamp
		if c.last {
			return true, 0, 0
		}
		c.idle = true
		return false, left, left
	}
	enough := hlc.Min(highest, c.quiet.Add(changesStep))
	if c.last || enough.LessEq(rd.timestamp) {
		return true, 0, 0
	}
	rd.closed.need = enough
	return false, left, changesCheck
}

// feedsHeldLocked says that half of the reads that may wait do: no more are held that can be
// answered.
func (r *Replica) feedsHeldLocked() bool {
	return r.mu.reads.waiting >= r.node.MaxWaitingReads/2
}

// changesQuiet has a read of changes that has found nothing go on waiting, if it may.
func (r *Replica) changesQuiet(rd *read, found *kvpb.ChangesResponse) bool {
	c := rd.changes
	if rd.closed == nil || !rd.latest() || found == nil || found.More || len(found.Changes) > 0 ||
		c.last {
		r.countChanges(rd, found)
		return false
	}
	c.quiet = hlc.Max(c.quiet, wire.FromTimestamp(found.Resolved))
	if !r.goActive(func() { r.readClosed(rd) }) {
		r.countChanges(rd, found)
		return false
	}
	return true
}

// countChanges counts an answer to a read of changes.
func (r *Replica) countChanges(rd *read, found *kvpb.ChangesResponse) {
	m := &r.node.Metrics.Reads
	m.Changes.Add(float64(len(found.GetChanges())))
	if rd.latest() && !found.GetMore() {
		lag := time.Duration(r.node.Clock.Physical() - wire.FromTimestamp(found.GetResolved()).Wall)
		m.ChangesLag.Observe(max(0, lag.Seconds()))
	}
}

package read

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// changesStep is how much time must be resolved before the engine is read, unless everything
	// applied is resolved.
	changesStep = 100 * time.Millisecond
	// changesCheck is the interval at which a read of changes looks whether its timestamp is
	// closed.
	changesCheck = 50 * time.Millisecond
)

// startChanges notes what a read of changes wants.
func (r *Reader) startChanges(rd *read, of *command.Changing) {
	if of == nil {
		return
	}
	c := &changesReading{after: of.After, quiet: of.After, until: r.Node.LockNow()}
	if rd.latest() && rd.pending.Request.ReplicaRead != nil {
		c.until = c.until.Add(of.Idle)
		if end := rd.pending.Deadline(); !end.IsZero() && end.Before(c.until) {
			c.until = end
		}
	}
	rd.changes = c
}

// oldest returns the lowest timestamp whose state is read, by a read at a timestamp. Below the
// quiet timestamp there were no changes, so there was nothing to collect.
func (rd *read) oldest(at hlc.Timestamp) hlc.Timestamp {
	if rd.changes != nil {
		return rd.changes.quiet
	}
	return at
}

// quietUpTo returns the timestamp up to which it is known that there are no changes.
func (rd *read) quietUpTo() hlc.Timestamp {
	if rd.changes == nil {
		return hlc.Timestamp{}
	}
	return rd.changes.quiet
}

// idleLocked reports that a read waits for a write, and nothing was written.
func (rd *read) idleLocked(highest hlc.Timestamp) bool {
	return rd.changes != nil && rd.changes.idle && highest.LessEq(rd.changes.quiet)
}

// holdChangesLocked decides whether a read of changes is served now. ok is set if its timestamp is
// chosen. Otherwise the read waits for at most patience, and looks at intervals of check.
func (r *Reader) holdChangesLocked(rd *read, ok bool,
	patience time.Duration) (serve bool, _, check time.Duration) {
	c := rd.changes
	c.idle = false
	if !rd.latest() {
		return ok, patience, closedCheck
	}
	left := c.until.Sub(r.Node.LockNow())
	c.last = left <= 0 || r.feedsHeldLocked()
	if !ok {
		if c.last && c.after.Less(c.quiet) {
			rd.timestamp = c.quiet // there was nothing, which is an answer too
			return true, 0, 0
		}
		return false, max(patience, left), changesCheck
	}
	highest := r.Mu.Applied.Highest
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

// feedsHeldLocked reports that the reads of changes fill half of the room for waiting reads: from
// then on those that can be answered are not held.
func (r *Reader) feedsHeldLocked() bool {
	return r.Mu.WaitingReads >= r.Node.MaxWaitingReads/2
}

// changesQuiet makes a read of changes that has found nothing wait on, if it may.
func (r *Reader) changesQuiet(rd *read, found *kvpb.ChangesResponse) bool {
	c := rd.changes
	if rd.closed == nil || !rd.latest() || found == nil || found.More || len(found.Changes) > 0 ||
		c.last {
		r.countChanges(rd, found)
		return false
	}
	c.quiet = hlc.Max(c.quiet, wire.FromTimestamp(found.Resolved))
	if !r.GoActive(func() { r.readClosed(rd) }) {
		r.countChanges(rd, found)
		return false
	}
	return true
}

// countChanges counts an answer to a read of changes.
func (r *Reader) countChanges(rd *read, found *kvpb.ChangesResponse) {
	m := &r.Node.Metrics.Reads
	m.Changes.Add(float64(len(found.GetChanges())))
	if rd.latest() && !found.GetMore() {
		lag := time.Duration(r.Node.Clock.Physical() - wire.FromTimestamp(found.GetResolved()).Wall)
		m.ChangesLag.Observe(max(0, lag.Seconds()))
	}
}

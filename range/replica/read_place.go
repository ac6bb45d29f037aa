package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// How a read that is registered is placed between the writes: see read.go.

// placeLocked remembers the read's timestamp in the timestamp cache, and returns the proposal that
// it has to wait for.
func (r *Replica) placeLocked(rd *read) *pendingEntry {
	T := rd.timestamp
	// What was written by this leadership is above low, and its clock has been seen by the client
	// that chose `at`. So only what earlier leaders wrote can have been acknowledged before the
	// scan began and yet be above `at`. And what a transaction put above the timestamp at which it
	// was prepared here.
	rd.limit, rd.expiries = hlc.Timestamp{}, hlc.Timestamp{}
	switch {
	case rd.latest():
		// A version whose expiry an earlier leader's reads have been above, by a faster clock, may
		// be known to have expired. This one's reads are below what its clock shows.
		rd.expiries = r.servedBeforeLocked()
	case !rd.uncertainUntil.IsZero():
		earlier := hlc.Max(rd.observed, hlc.Max(r.mu.leadership.Low(), r.mu.foreign))
		rd.limit = hlc.Min(rd.uncertainUntil, earlier)
		rd.expiries = rd.limit
	}
	// INVARIANT: also for a moment, which may be taken for one of the partition as it will be: by
	// then another leader may have written at a later time.
	if rd.unplaced = r.mu.holding != nil; rd.unplaced {
		return r.mu.holding
	}
	if rd.momentOnly {
		if r.mu.applied.Stats.Expiring > 0 {
			rd.timestamp = hlc.Max(rd.timestamp, rd.expiries)
		}
		return nil
	}
	f := rd.command.Footprint(rd.pending.Request)
	if rd.belowPending() {
		r.mu.cache.Record(f.One, T)
		return r.placeBelowLocked(rd, f.One)
	}
	var last uint64
	for key := range f.Keys {
		r.mu.cache.Record(key, T)
		last = max(last, r.newestPendingLocked(key, T))
	}
	for start, end := range f.EachSpan {
		r.mu.cache.RecordSpan(keys.Span{Start: start, End: end}, T)
		if p := r.newestInSpanLocked(rd, start, end); p != nil {
			last = max(last, p.sequence)
		}
	}
	return r.mu.find(last)
}

// servedBeforeLocked is at or above all that earlier leaders have served.
func (r *Replica) servedBeforeLocked() hlc.Timestamp {
	return hlc.Max(r.mu.leadership.Low(), r.mu.applied.Closed)
}

// belowPending says that the read is of the latest value of one key, and does not wait for pending
// writes.
func (rd *read) belowPending() bool {
	return rd.command.BelowPending && rd.latest() && rd.context == nil
}

// placeBelowLocked places a read of one key below the pending writes, which are not acknowledged,
// so that the value below them is as good. Unless the session has seen a later timestamp than that
// of a pending write: then its order would show, and the read waits for it.
func (r *Replica) placeBelowLocked(rd *read, key []byte) *pendingEntry {
	var lowest hlc.Timestamp
	if oldest := r.mu.pending.Oldest(text(key)); oldest != nil {
		lowest = oldest.Timestamp
	} else if p := r.loadOfLocked(key, rd.timestamp); p != nil {
		lowest = p.lowest
	} else {
		return nil
	}
	if sequence := r.newestPendingLocked(key, rd.session); sequence != 0 {
		return r.mu.find(sequence)
	}
	if lowest.LessEq(rd.timestamp) {
		rd.timestamp = lowest.Prev()
	}
	return nil
}

// newestPendingLocked is the sequence of the newest pending entry that writes the key at or
// below at; 0: none.
func (r *Replica) newestPendingLocked(key []byte, at hlc.Timestamp) uint64 {
	if w := r.mu.pending.At(text(key), at); w != nil {
		return w.Sequence
	}
	if p := r.loadOfLocked(key, at); p != nil {
		return p.sequence
	}
	return 0
}

// newestInSpanLocked is the newest pending entry that writes into the span at or below the
// read's timestamp.
func (r *Replica) newestInSpanLocked(rd *read, start, end []byte) *pendingEntry {
	writes := func(p *pendingEntry) bool {
		if p == nil || len(p.writes) == 0 && p.load == nil || rd.timestamp.Less(p.lowest) {
			return false
		}
		if p.load.in(start, end) {
			return true
		}
		for _, w := range p.writes {
			if w.Timestamp.LessEq(rd.timestamp) && w.Key >= text(start) &&
				(len(end) == 0 || w.Key < text(end)) {
				return true
			}
		}
		return false
	}
	if writes(r.mu.building) {
		return r.mu.building
	}
	for i := len(r.mu.inFlight) - 1; i >= 0; i-- {
		if p := r.mu.inFlight[i]; writes(p) {
			return p
		}
	}
	return nil
}

package read

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
)

// How a registered read is placed between the writes: see reader.go.

// placeLocked records the read's timestamp in the timestamp cache, and returns the proposal that
// the read has to wait for; nil if there is none.
func (r *Reader) placeLocked(rd *read) *machine.Entry {
	T := rd.timestamp
	// Versions that this leadership wrote are above low, and the client that chose `at` has seen
	// its clock. So only two kinds of versions above `at` can have been acknowledged before the
	// read began: those of earlier leaders, and those that a transaction put above the timestamp at
	// which it was prepared here.
	rd.limit, rd.expiries = hlc.Timestamp{}, hlc.Timestamp{}
	switch {
	case rd.latest():
		// Reads of an earlier leader with a faster clock may have been above a version's expiry, so
		// that clients know it to have expired. This leader's reads are below what its clock shows.
		rd.expiries = r.servedBeforeLocked()
	case !rd.uncertainUntil.IsZero():
		earlier := hlc.Max(rd.observed, hlc.Max(r.Mu.Leadership.Low(), r.Mu.Foreign))
		rd.limit = hlc.Min(rd.uncertainUntil, earlier)
		rd.expiries = rd.limit
	}
	// INVARIANT: this holds for a snapshot timestamp too: when it is used, the partition may have
	// changed, and another leader may have written at a later time.
	if rd.unplaced = r.Mu.Holding != nil; rd.unplaced {
		return r.Mu.Holding
	}
	if rd.timestampOnly {
		if r.Mu.Applied.Stats.Expiring > 0 {
			rd.timestamp = hlc.Max(rd.timestamp, rd.expiries)
		}
		return nil
	}
	f := rd.command.Footprint(rd.pending.Request)
	if rd.belowPending() {
		r.Mu.Cache.Record(f.One, T)
		return r.placeBelowLocked(rd, f.One)
	}
	var last uint64
	for key := range f.Keys {
		r.Mu.Cache.Record(key, T)
		last = max(last, r.newestPendingLocked(key, T))
	}
	for start, end := range f.EachSpan {
		r.Mu.Cache.RecordSpan(keys.Span{Start: start, End: end}, T)
		if p := r.newestInSpanLocked(rd, start, end); p != nil {
			last = max(last, p.Sequence)
		}
	}
	return r.Mu.Find(last)
}

// servedBeforeLocked returns a timestamp at or above all that earlier leaders have served.
func (r *Reader) servedBeforeLocked() hlc.Timestamp {
	return hlc.Max(r.Mu.Leadership.Low(), r.Mu.Applied.Closed)
}

// belowPending reports that the read is of the latest value of one key, and does not wait for
// pending writes.
func (rd *read) belowPending() bool {
	return rd.command.BelowPending && rd.latest() && rd.context == nil
}

// placeBelowLocked places a read of one key below the pending writes: they are not acknowledged, so
// the value below them is as good. But if the session has seen a later timestamp than that of a
// pending write, the order would show, and the read waits for the write.
func (r *Reader) placeBelowLocked(rd *read, key []byte) *machine.Entry {
	var lowest hlc.Timestamp
	if oldest := r.Mu.Pending.Oldest(machine.Text(key)); oldest != nil {
		lowest = oldest.Timestamp
	} else if p := r.Mu.LoadOf(key, rd.timestamp); p != nil {
		lowest = p.Lowest
	} else {
		return nil
	}
	if sequence := r.newestPendingLocked(key, rd.session); sequence != 0 {
		return r.Mu.Find(sequence)
	}
	if lowest.LessEq(rd.timestamp) {
		rd.timestamp = lowest.Prev()
	}
	return nil
}

// newestPendingLocked returns the sequence of the newest pending entry that writes the key at or
// below at; 0 if there is none.
func (r *Reader) newestPendingLocked(key []byte, at hlc.Timestamp) uint64 {
	if w := r.Mu.Pending.At(machine.Text(key), at); w != nil {
		return w.Sequence
	}
	if p := r.Mu.LoadOf(key, at); p != nil {
		return p.Sequence
	}
	return 0
}

// newestInSpanLocked returns the newest pending entry that writes into the span at or below the
// read's timestamp.
func (r *Reader) newestInSpanLocked(rd *read, start, end []byte) *machine.Entry {
	writes := func(p *machine.Entry) bool {
		if p == nil || len(p.Writes) == 0 && p.Load == nil || rd.timestamp.Less(p.Lowest) {
			return false
		}
		if p.Load.In(start, end) {
			return true
		}
		for _, w := range p.Writes {
			if w.Timestamp.LessEq(rd.timestamp) && w.Key >= machine.Text(start) &&
				(len(end) == 0 || w.Key < machine.Text(end)) {
				return true
			}
		}
		return false
	}
	if writes(r.Mu.Building) {
		return r.Mu.Building
	}
	for i := len(r.Mu.InFlight) - 1; i >= 0; i-- {
		if p := r.Mu.InFlight[i]; writes(p) {
			return p
		}
	}
	return nil
}

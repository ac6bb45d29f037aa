package machine

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/config"
)

// Lag returns how far behind the clock timestamps are closed; negative: no timestamps are closed.
func (r *Machine) Lag() time.Duration {
	if lag := r.closedLag.Load(); lag != 0 {
		return time.Duration(lag)
	}
	return config.DefaultClosedLag
}

// Closable returns the timestamp that this replica could close as a leader, by its clock and its
// lease; zero if there is none. It is called without the lock, before the promise is made.
func (r *Machine) Closable() (at hlc.Timestamp, term uint64) {
	lag := int64(r.Lag())
	if lag < 0 {
		return hlc.Timestamp{}, 0
	}
	// INVARIANT: the clock is read before the lease is looked at.
	wall, trusted := r.Node.Clock.PhysicalReading()
	if !trusted || wall <= lag || !r.Node.ClockTrusted() {
		return hlc.Timestamp{}, 0
	}
	term, leased := r.Group.Lease()
	if !leased {
		return hlc.Timestamp{}, 0
	}
	return hlc.Timestamp{Wall: wall - lag}, term
}

// PromiseLocked promises to write nothing at or below a closable timestamp of a term. It returns
// the promise that holds: this one or a higher earlier one; zero if this replica can promise
// nothing.
func (r *Machine) PromiseLocked(at hlc.Timestamp, term uint64) hlc.Timestamp {
	l := &r.Mu.Leadership
	if at.IsZero() || !l.IsLeader || l.Term != term || !l.Serving() || r.LowDueLocked() ||
		l.HandingOver() ||
		r.Mu.Holding != nil || r.Descriptor().GetFrozen() != nil {
		return hlc.Timestamp{}
	}
	return r.Mu.Closing.Promise(at)
}

// FloorLocked returns the timestamp above which every write and lock must be: it is closed by an
// applied entry, or by a promise of this leadership.
func (r *Machine) FloorLocked() hlc.Timestamp {
	return hlc.Max(r.Mu.Applied.Closed, r.Mu.Closing.Promised())
}

// ServedLocked returns the highest timestamp at which this leadership has read or closed anything.
func (r *Machine) ServedLocked() hlc.Timestamp {
	return hlc.Max(r.Mu.Cache.Max(), r.Mu.Closing.Promised())
}

func (r *Machine) ClosedLocked() hlc.Timestamp {
	return hlc.Max(r.Mu.Applied.Closed, r.Mu.Closing.Closed(r.Mu.Applied.Index))
}

// SetLag sets how far behind the clock timestamps are closed, and reports whether the lag changed.
func (r *Machine) SetLag(lag time.Duration) bool {
	return r.closedLag.Swap(int64(lag)) != int64(lag)
}

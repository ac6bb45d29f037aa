package machine

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/config"
)

// Lag is how far behind the clock timestamps are closed; negative: none are.
func (r *Machine) Lag() time.Duration {
	if lag := r.closedLag.Load(); lag != 0 {
		return time.Duration(lag)
	}
	return config.DefaultClosedLag
}

// Closable is the timestamp that this replica could close if it leads, as far as its clock and its
// lease go; zero: none. It is called without the lock, before the promise is made.
func (r *Machine) Closable() (at hlc.Timestamp, term uint64) {
	lag := int64(r.Lag())
	if lag < 0 {
		return hlc.Timestamp{}, 0
	}
	// INVARIANT: the clock is read before the lease is looked at.
	wall, trusted := r.Node.Clock.PhysicalReading()
	if !trusted || wall <= lag || !r.Node.BelievesClock() {
		return hlc.Timestamp{}, 0
	}
	term, leased := r.Group.Lease()
	if !leased {
		return hlc.Timestamp{}, 0
	}
	return hlc.Timestamp{Wall: wall - lag}, term
}

// PromiseLocked promises a timestamp that is closable in a term, and returns what is promised:
// that, or what was promised before; zero if this replica cannot promise anything.
func (r *Machine) PromiseLocked(at hlc.Timestamp, term uint64) hlc.Timestamp {
	l := &r.Mu.Leadership
	if at.IsZero() || !l.IsLeader || l.Term != term || !l.Serving() || r.LowDueLocked() ||
		l.HandingOver() ||
		r.Mu.Holding != nil || r.Descriptor().GetFrozen() != nil {
		return hlc.Timestamp{}
	}
	return r.Mu.Closing.Promise(at)
}

// FloorLocked is the timestamp above which all is to be written and locked: what is closed, by what
// is applied here, and by what this leadership has promised.
func (r *Machine) FloorLocked() hlc.Timestamp {
	return hlc.Max(r.Mu.Applied.Closed, r.Mu.Closing.Promised())
}

// ServedLocked is the highest timestamp at which anything was read, or closed, by this leadership.
func (r *Machine) ServedLocked() hlc.Timestamp {
	return hlc.Max(r.Mu.Cache.Max(), r.Mu.Closing.Promised())
}

func (r *Machine) ClosedLocked() hlc.Timestamp {
	return hlc.Max(r.Mu.Applied.Closed, r.Mu.Closing.Closed(r.Mu.Applied.Index))
}

// SetLag sets how far behind the clock timestamps are closed, and says whether that is another lag.
func (r *Machine) SetLag(lag time.Duration) bool {
	return r.closedLag.Swap(int64(lag)) != int64(lag)
}

package read

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// Reads ahead of the physical clock.
//
// A later leader must not write at or below the timestamp of a read that this leader has served. It
// starts its timestamps one hlc.Clock.MaxAhead above its own clock, and above all timestamps in the
// log (leadership.State.TakeLow). Its clock may be one MaxOffset behind this server's. So it starts
// above every timestamp that is at most MaxAhead - MaxOffset ahead of this server's clock at the
// time of its election, which is not before the end of this leader's lease.
//
// A hybrid clock may be further ahead: it has merged a timestamp that a client has named, or that
// another partition's new leader has written. A read at such a timestamp is served if the lease
// lasts until the physical clock has come that far. Otherwise a quorum is asked first, which
// extends the lease to its full length. If that is not long enough the read is refused, and clients
// send it again. In a healthy cluster leases are longer than the difference of clocks.

// earlyLocked returns by how much a read at a timestamp is too early to be served.
func (r *Reader) earlyLocked(t hlc.Timestamp) time.Duration {
	if t.Wall <= r.Mu.Applied.Highest.Wall {
		return 0 // every later leader begins beyond what is in the log
	}
	clock := r.Node.Clock
	ahead := time.Duration(t.Wall-clock.Physical()) - (clock.MaxAhead() - clock.MaxOffset())
	if ahead <= 0 {
		return 0
	}
	return ahead - max(0, r.Group.LeaseLeft())
}

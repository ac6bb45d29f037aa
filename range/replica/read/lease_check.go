package read

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// Reads ahead of the physical clock.
//
// A later leader may not write at or below the timestamp of a read that this one has served. It
// knows of it by what is in the log, and by its own clock: it begins one hlc.Clock.MaxAhead above
// that (LeadershipChanged). Its clock may be one MaxOffset behind this server's, so it is above
// everything that lies no more than MaxAhead - MaxOffset above what this server's clock shows at
// the time of its election. Which is not before the end of this leader's lease.
//
// A hybrid clock may be further ahead: it has merged what a client has named, or what another
// partition's new leader has written. A read at such a timestamp is served if the lease lasts until
// the physical clock has come that far. Otherwise a quorum is asked first, which makes the lease as
// long as it gets. If that is not long enough the read is refused, and clients send it again. In a
// healthy cluster leases last for longer than clocks are apart.

// earlyLocked is by how much a read at a timestamp is too early to be served.
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

package consumer

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// shortWindow is the GC window below which consumers are protected from the beginning: half of it
// would be over before the nodes know.
const shortWindow = time.Minute

// Lowest is the lowest position of the consumers that history is kept for; zero: there are none.
func Lowest(all []Record) (lowest hlc.Timestamp) {
	for _, c := range all {
		if p := c.At(); !c.TooOld && (lowest.IsZero() || p.Less(lowest)) {
			lowest = p
		}
	}
	return lowest
}

// Protection is what is to be protected in a keyspace with a GC window whose consumers have come to
// lowest, and in which known is protected until now; zero: nothing has to be, for the window keeps
// it, and goes on to until there has been time to protect it.
//
// INVARIANT: without a proven time, nothing that is protected is given up. What the GC window keeps
// is known only with one: the clock of the leader alone may be behind, and what nodes collect
// because of it is lost.
func Protection(known, lowest hlc.Timestamp, window time.Duration, now Times) hlc.Timestamp {
	if now.Proven.IsZero() {
		if lowest.IsZero() || !known.IsZero() && known.Less(lowest) {
			return known
		}
		return lowest
	}
	if window >= shortWindow && !lowest.Less(hlc.FromTime(now.Latest().Add(-window/2))) {
		return hlc.Timestamp{}
	}
	return lowest
}

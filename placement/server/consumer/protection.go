package consumer

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// shortWindow is the GC window below which consumers are protected from the beginning: half of it
// would be over before the nodes know.
const shortWindow = time.Minute

// Lowest returns the lowest position of the consumers for which history is kept; zero if there are
// none.
func Lowest(all []Record) (lowest hlc.Timestamp) {
	for _, c := range all {
		if p := c.At(); !c.TooOld && (lowest.IsZero() || p.Less(lowest)) {
			lowest = p
		}
	}
	return lowest
}

// Protection returns the timestamp to be protected in a keyspace with a GC window whose consumers
// have come to lowest; known is the one protected until now. Zero: nothing has to be protected,
// since the window keeps it, and will until there has been time to protect it.
//
// INVARIANT: without a proven time, no protection is given up. What the GC window keeps is known
// only with a proven time: the clock of the leader alone may be behind, and what nodes collect
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

package consumer

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// shortWindow is a GC window. In keyspaces with shorter windows, consumers are protected from the
// beginning: half of the window would be over before the nodes learned of a protection.
const shortWindow = time.Minute

// Lowest returns the lowest position of the consumers for which history is kept. It returns zero if
// there are none.
func Lowest(all []Record) (lowest hlc.Timestamp) {
	for _, c := range all {
		if p := c.At(); !c.TooOld && (lowest.IsZero() || p.Less(lowest)) {
			lowest = p
		}
	}
	return lowest
}

// Protection returns the timestamp to protect in a keyspace with a GC window. lowest is the lowest
// position of its consumers, and known the timestamp that is protected so far. Zero means that
// nothing has to be protected: the window still keeps the history, and will keep it until a
// protection can take effect.
//
// INVARIANT: without a proven time, no protection is given up. Only a proven time shows what the GC
// window keeps. The leader's own clock may be behind, and history that nodes collect because of
// that would be lost.
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

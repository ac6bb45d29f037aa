package consumer

import (
	"slices"
	"time"
)

// Times are the leader's estimates of the present time.
type Times struct {
	// Proven is a time that has certainly come. It is zero if no time is proven.
	Proven time.Time
	// Wall is the reading of this member's clock, which may be wrong.
	Wall time.Time
}

// Likely returns the best estimate of the time.
func (t Times) Likely() time.Time {
	if t.Proven.IsZero() {
		return t.Wall
	}
	return t.Proven
}

// Latest returns the later of the two times. An action that must not come too late uses it.
func (t Times) Latest() time.Time {
	if t.Wall.Before(t.Proven) {
		return t.Proven
	}
	return t.Wall
}

// Ahead returns how far a node's clock is ahead of the monotonic clock, according to a heartbeat.
// It returns nil if the node does not trust its clock.
func Ahead(clock uint64, now int64) *int64 {
	if clock == 0 || clock > 1<<63-1 {
		return nil
	}
	ahead := int64(clock) - now
	return &ahead
}

// Majority returns the least amount by which the clocks of a majority of the live nodes are ahead
// of the monotonic clock. told has the results of Ahead for the nodes that have reported. Majority
// sorts told. ok is false if no majority has reported.
func Majority(told []int64, alive int) (ahead int64, ok bool) {
	majority := alive/2 + 1
	if len(told) < majority {
		return 0, false
	}
	slices.Sort(told)
	return told[len(told)-majority], true
}

package consumer

import (
	"slices"
	"time"
)

// Times is what time it is, as far as the leader can tell.
type Times struct {
	// Proven has come; zero: nothing is proven.
	Proven time.Time
	// Wall is what the clock of this member shows, right or wrong.
	Wall time.Time
}

// Likely is what time it is, best of all that is known.
func (t Times) Likely() time.Time {
	if t.Proven.IsZero() {
		return t.Wall
	}
	return t.Proven
}

// Latest is the higher of the two: what is done by that is done too early rather than too late.
func (t Times) Latest() time.Time {
	if t.Wall.Before(t.Proven) {
		return t.Proven
	}
	return t.Wall
}

// Ahead is how far a node's clock, as a heartbeat brings it, is ahead of the monotonic clock;
// nil: the node does not trust it.
func Ahead(clock uint64, now int64) *int64 {
	if clock == 0 || clock > 1<<63-1 {
		return nil
	}
	ahead := int64(clock) - now
	return &ahead
}

// Majority is by how much the clocks of a majority of the nodes that are alive are ahead of the
// monotonic clock, at least. told is what Ahead has found of those of them that have told; it is
// sorted. Not ok: a majority has not.
func Majority(told []int64, alive int) (ahead int64, ok bool) {
	majority := alive/2 + 1
	if len(told) < majority {
		return 0, false
	}
	slices.Sort(told)
	return told[len(told)-majority], true
}

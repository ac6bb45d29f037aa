package concurrency

import (
	"maps"
	"time"

	"github.com/tidemarkdb/tidemark/txn"
)

// A transaction that readers push has to validate what it has read at a later timestamp, and asks
// for its commit again. Meanwhile others push it above that. What they read at comes from clocks
// that have seen the timestamp of the validation, so there may be no end to it. From its third
// refusal on the transaction has its timestamp held: pushes leave it alone, and the readers wait as
// they do when a push has come to nothing, until its locks are gone or they ask again.
//
// Nothing rests on it but progress. It is in the leader's memory, and ends with its leadership.
//
// Of transactions that wait for one another so, each has been pushed often enough to give way to an
// older one (RefreshRequest.yield), so one of them does.

const (
	// holdTimestamp is for how long a timestamp is held: for a validation and a commit.
	holdTimestamp = time.Second
	// maxHeldTimestamps bounds how many are held at once. Beyond it no more are.
	maxHeldTimestamps = 1024
)

// HoldTimestamp has a transaction's timestamp held.
func (m *Manager) HoldTimestamp(id txn.ID, now time.Time) {
	c := m.coordinator()
	if _, again := c.held[id]; !again && len(c.held) >= maxHeldTimestamps {
		maps.DeleteFunc(c.held, func(_ txn.ID, until time.Time) bool { return !now.Before(until) })
		if len(c.held) >= maxHeldTimestamps {
			return
		}
	}
	if c.held == nil {
		c.held = make(map[txn.ID]time.Time)
	}
	c.held[id] = now.Add(holdTimestamp)
}

// TimestampHeld says whether a transaction's timestamp is held.
func (m *Manager) TimestampHeld(id txn.ID, now time.Time) bool {
	c := m.coordinated
	if c == nil {
		return false
	}
	until, held := c.held[id]
	if held && !now.Before(until) {
		delete(c.held, id)
		return false
	}
	return held
}

package concurrency

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/txn"
)

// Coordinated is what the coordinator of transactions remembers of them beside their records. The
// zero Coordinated remembers nothing.
type Coordinated struct {
	// wanted are transactions for whose locks anything waits, or did, somewhere.
	wanted map[txn.ID]struct{}
	// held are transactions whose timestamps are held, and until when.
	held map[txn.ID]time.Time
	// aborted are the latest transactions that were aborted on request.
	aborted []txn.Info
}

// endEpoch forgets what belongs to a leadership epoch. What was aborted stays so.
func (c *Coordinated) endEpoch() { c.wanted, c.held = nil, nil }

// A coordinator remembers which of its transactions have locks that anything waits for, somewhere:
// a large transaction then hurries. It learns so from pushes, and tells with heartbeats.

// maxWanted bounds how many wanted transactions are remembered: beyond that all are forgotten, and
// asked for again soon.
const maxWanted = 1024

// Want notes that a request waits for a transaction's locks.
func (c *Coordinated) Want(id txn.ID) {
	if _, known := c.wanted[id]; !known && len(c.wanted) >= maxWanted {
		c.wanted = nil
	}
	if c.wanted == nil {
		c.wanted = make(map[txn.ID]struct{})
	}
	c.wanted[id] = struct{}{}
}

// Wanted says whether a request waits for a transaction's locks, or did.
func (c *Coordinated) Wanted(id txn.ID) bool {
	_, wanted := c.wanted[id]
	return wanted
}

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
func (c *Coordinated) HoldTimestamp(id txn.ID, now time.Time) {
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
func (c *Coordinated) TimestampHeld(id txn.ID, now time.Time) bool {
	until, held := c.held[id]
	if held && !now.Before(until) {
		delete(c.held, id)
		return false
	}
	return held
}

// A transaction that was aborted on request has no locks any more, and its record cannot be found
// by its id alone. So the leader remembers which those were, for a request that is repeated: it
// reads their records then. What it forgets is told as what is not known.

// maxAbortedOnRequest is how many are remembered.
const maxAbortedOnRequest = 32

// RememberAborted notes that a transaction was asked to be aborted.
func (c *Coordinated) RememberAborted(of txn.Info) {
	if slices.ContainsFunc(c.aborted, func(x txn.Info) bool { return x.ID == of.ID }) {
		return
	}
	if len(c.aborted) == maxAbortedOnRequest {
		c.aborted = slices.Delete(c.aborted, 0, 1)
	}
	of.Anchor = bytes.Clone(of.Anchor)
	c.aborted = append(c.aborted, of)
}

// AbortedOnRequest is the transaction with an id that was asked to be aborted, if it is remembered.
func (c *Coordinated) AbortedOnRequest(id []byte) (of txn.Info, ok bool) {
	i := slices.IndexFunc(c.aborted, func(x txn.Info) bool { return bytes.Equal(x.ID[:], id) })
	if i < 0 {
		return of, false
	}
	return c.aborted[i], true
}

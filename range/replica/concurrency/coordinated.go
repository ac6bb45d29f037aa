package concurrency

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/txn"
)

// Coordinated holds what the coordinator remembers about transactions besides their records. The
// zero value is empty.
type Coordinated struct {
	// wanted holds transactions for whose locks a request waits, or did, in any partition.
	wanted map[txn.ID]struct{}
	// held holds transactions whose timestamps are held, and until when.
	held map[txn.ID]time.Time
	// aborted lists the latest transactions that were aborted on request.
	aborted []txn.Info
}

// endEpoch forgets what belongs to a leadership epoch. Transactions that were aborted stay aborted.
func (c *Coordinated) endEpoch() { c.wanted, c.held = nil, nil }

// A coordinator remembers which of its transactions have locks for which requests wait, in any
// partition, so that a large transaction then hurries. It learns of them from pushes, and tells the
// transactions in the answers to heartbeats.

// maxWanted bounds the wanted transactions that are remembered. Beyond it all are forgotten;
// requests that still wait push again soon.
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

// Wanted reports whether a request waits, or did, for a transaction's locks.
func (c *Coordinated) Wanted(id txn.ID) bool {
	_, wanted := c.wanted[id]
	return wanted
}

// A transaction that readers push must validate its reads at a later timestamp, and asks for its
// commit again. Meanwhile others push it above that timestamp. They read at timestamps from clocks
// that have seen the timestamp of the validation, so this could go on for ever. From its third
// refusal on the transaction has its timestamp held: pushes leave it alone, and the readers wait,
// as after a failed push, until its locks are gone or they ask again.
//
// Only progress depends on this. The state is in the leader's memory, and ends with its leadership.
//
// Transactions that wait for one another in this way have each been pushed often enough to give way
// to an older one (RefreshRequest.yield), so one of them does.

const (
	// holdTimestamp is how long a timestamp is held: long enough for a validation and a commit.
	holdTimestamp = time.Second
	// maxHeldTimestamps bounds the timestamps that are held at once. Beyond it no more are.
	maxHeldTimestamps = 1024
)

// HoldTimestamp holds a transaction's timestamp.
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

// TimestampHeld reports whether a transaction's timestamp is held.
func (c *Coordinated) TimestampHeld(id txn.ID, now time.Time) bool {
	until, held := c.held[id]
	if held && !now.Before(until) {
		delete(c.held, id)
		return false
	}
	return held
}

// A transaction that was aborted on request has no locks any more, and its record cannot be found
// by its id alone. So the leader remembers such transactions, and reads their records if a request
// is repeated. Once forgotten, a transaction is reported as unknown.

// maxAbortedOnRequest bounds the transactions that are remembered.
const maxAbortedOnRequest = 32

// RememberAborted notes that the abort of a transaction was requested.
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

// AbortedOnRequest returns the transaction with an id whose abort was requested, if it is
// remembered.
func (c *Coordinated) AbortedOnRequest(id []byte) (of txn.Info, ok bool) {
	i := slices.IndexFunc(c.aborted, func(x txn.Info) bool { return bytes.Equal(x.ID[:], id) })
	if i < 0 {
		return of, false
	}
	return c.aborted[i], true
}

package locks

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// State is the part of a lock that is known without reading the engine.
type State struct {
	// Kind is PUT, DELETE or LOCK.
	Kind kvpb.Mutation_Kind
	// Prepared is the lowest timestamp at which the key may be committed.
	Prepared hlc.Timestamp
	// Request is the id of the Prepare that acquired it.
	Request mvcc.RequestID
	// Acquired is when it was acquired, in nanoseconds since the epoch by the leader's physical
	// clock.
	Acquired int64
	// Size is the length of the value in bytes.
	Size int
	// Volatile is set if the lock is in this table only.
	Volatile bool
}

// Writes reports that the key changes if the transaction commits. Other locks are in no read's way.
func (s *State) Writes() bool { return s.Kind != kvpb.Mutation_LOCK }

// Lock is the lock of a key or a span. Only the table changes its fields.
type Lock[W any] struct {
	// Key is a user key, or the start of a span.
	Key string
	// Span is set for a span lock, of [Key, End); an empty End reaches to the end of the partition.
	Span        bool
	End         string
	Transaction *Transaction[W]
	// Applied is the state in the engine, or the volatile state; nil if there is none yet.
	Applied *State
	// Proposed is the state that the proposal with the number Sequence carries; nil if there is
	// none.
	Proposed *State
	// Sequence is that of the proposal that changes or releases the lock; 0: none is on its way.
	Sequence uint64

	// index is the lock's place among the transaction's locks.
	index int
	// waiting counts the requests that wait for it.
	waiting int
}

// InFlight reports that a change of the lock, or its release, is on its way.
func (l *Lock[W]) InFlight() bool { return l.Sequence != 0 }

// Releasing reports that the release is on its way.
func (l *Lock[W]) Releasing() bool { return l.Sequence != 0 && l.Proposed == nil }

// Newest returns the state that the lock will have when its change in flight is applied, or the
// present state if there is none or the lock is releasing.
func (l *Lock[W]) Newest() *State {
	if l.Proposed != nil {
		return l.Proposed
	}
	return l.Applied
}

// Blocks reports that a commit of the transaction may put a version of the key at or below a
// timestamp.
func (l *Lock[W]) Blocks(at hlc.Timestamp) bool {
	blocks := func(s *State) bool { return s != nil && s.Writes() && s.Prepared.LessEq(at) }
	return blocks(l.Applied) || blocks(l.Proposed)
}

// Until says what a waiter waits for.
type Until uint8

const (
	// UntilApplied: no change of the lock is in flight any more, or the lock is gone.
	UntilApplied Until = iota
	// UntilGone: the lock is gone.
	UntilGone
)

// waiter is a request that waits for a lock.
type waiter[W any] struct {
	lock  *Lock[W]
	waits W
	until Until
}

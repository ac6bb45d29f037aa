package locks

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// State is what is known of a lock without reading it.
type State struct {
	// Kind is PUT, DELETE or LOCK.
	Kind kvpb.Mutation_Kind
	// Prepared is the lowest timestamp at which the key may be committed.
	Prepared hlc.Timestamp
	// Request is the Prepare that acquired it.
	Request mvcc.RequestID
	// Acquired is when, in nanoseconds since the epoch by the leader's physical clock.
	Acquired int64
	// Size is the length of the value in bytes.
	Size int
	// Volatile says that the lock is in this table and nowhere else.
	Volatile bool
}

// Writes says that the key changes if the transaction commits: a lock of any other kind is in no
// read's way.
func (s *State) Writes() bool { return s.Kind != kvpb.Mutation_LOCK }

// Lock is the lock of a key. Its fields are changed by the table only.
type Lock[W any] struct {
	// Key is a user key, or where the span begins.
	Key string
	// Span says that it is a span lock, of [Key, End); an empty End reaches to the end of the
	// partition.
	Span        bool
	End         string
	Transaction *Transaction[W]
	// Applied is the state in the engine, or the volatile one; nil if there is none yet.
	Applied *State
	// Proposed is the state on its way, nil if none is; it is carried by the proposal that has the
	// number Sequence.
	Proposed *State
	// Sequence is of the proposal that changes or releases the lock; 0: none is on its way.
	Sequence uint64

	// index is its place among the transaction's locks.
	index int
	// waiting counts what waits for it.
	waiting int
}

// InFlight says that a change of the lock is on its way, be it the release.
func (l *Lock[W]) InFlight() bool { return l.Sequence != 0 }

// Releasing says that the release is on its way.
func (l *Lock[W]) Releasing() bool { return l.Sequence != 0 && l.Proposed == nil }

// Newest is the state that the lock will have if what is on its way is applied, or the present one
// if it is about to go.
func (l *Lock[W]) Newest() *State {
	if l.Proposed != nil {
		return l.Proposed
	}
	return l.Applied
}

// Blocks says that a commit of the transaction may put a version of the key at or below a
// timestamp.
func (l *Lock[W]) Blocks(at hlc.Timestamp) bool {
	blocks := func(s *State) bool { return s != nil && s.Writes() && s.Prepared.LessEq(at) }
	return blocks(l.Applied) || blocks(l.Proposed)
}

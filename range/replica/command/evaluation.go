package command

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Evaluation evaluates one write after the other, and belongs to one goroutine. The owner sets the
// Basis and the Attempt, and calls Begin. A command reads both, and ends by one call of Refuse,
// Answer, NothingDone, Duplicate, Write, Decide, Acquire, End or Wait, which sets the Result.
type Evaluation struct {
	Basis
	Attempt
	Result

	getter *mvcc.Getter
	// index is the applied index up to which the getter surely sees everything.
	index uint64
	key   []byte
}

// Basis is the state on which all writes of an evaluation are evaluated.
type Basis struct {
	// State is the applied state; Pending holds the writes on top of it.
	State   engine.Reader
	Pending Pending
	// Vacant remembers spans without values in the state.
	Vacant     *vacant.Memory
	Descriptor *clusterpb.Partition
	// Coordination is the replica, for transactional commands.
	Coordination Coordination
	// PageBytes estimates how many bytes one entry holds.
	PageBytes int64
}

// Attempt holds the parameters of one attempt of a write.
type Attempt struct {
	// Clock is the clock's reading for the write. It is not below the timestamps that the write's
	// session has seen.
	Clock hlc.Timestamp
	// Request is the write's id. Every version that the write makes carries it.
	Request mvcc.RequestID
	// Since is a timestamp below all versions that an attempt of the request can have written.
	Since hlc.Timestamp
	// Session is the highest timestamp that the write's session has seen.
	Session hlc.Timestamp
	// CommitWait is set if the write has commit wait.
	CommitWait bool
	// DefaultTTL is the lifetime of a value whose write names none; 0: it does not expire.
	DefaultTTL time.Duration
	// AtLeast is a timestamp below which the write does not take effect; zero if none is known.
	AtLeast hlc.Timestamp
	// Waited is set if the write has waited for a lock, Aborted if its transaction was aborted
	// meanwhile.
	Waited, Aborted bool
	// Transaction holds the parameters of a transactional request; nil for other requests.
	Transaction *Transaction
}

// Pending gives an evaluation the writes that are not applied. Each call looks at one moment: a
// write that is applied later is among the pending writes, or above the applied index that the call
// returns.
type Pending interface {
	// Newest returns the newest pending write of a user key, as the version that it will be, and
	// the sequence of its entry. If there is none, sequence is 0, and the engine has all writes up
	// to the applied index.
	Newest(key []byte) (v mvcc.Version, sequence, applied uint64)
	// Find returns the pending write of a user key, above a timestamp, that a request made.
	Find(key []byte, above hlc.Timestamp, request mvcc.RequestID) (own Replayed, applied uint64)
	// Recent returns the newest version of a user key, without its value and its expiry, if it is
	// known without reading the engine, applied, and not above a timestamp. expires reports whether
	// it has an expiry.
	Recent(key []byte, until hlc.Timestamp) (v mvcc.Version, expires, ok bool)
	// Above returns the lowest timestamp at or above ts at which the user key can be written.
	Above(key []byte, ts hlc.Timestamp) hlc.Timestamp
}

// Outcome says how an evaluation ended.
type Outcome uint8

const (
	// Undecided: the evaluation has not ended.
	Undecided Outcome = iota
	// Refused: the write has no effect, for a reason that needs no proof of leadership.
	Refused
	// Answered: nothing is written, because of what was read.
	Answered
	// NothingDone is Answered for good: no attempt of the request may write later.
	NothingDone
	// Duplicate: an earlier attempt of the request had the effect.
	Duplicate
	// Written: the operations are written.
	Written
	// Decided: the transaction's record is set.
	Decided
	// EpochOver: the leadership epoch is over, and the write without effect.
	EpochOver
	// Waits: the write waits for a lock, and is evaluated again.
	Waits
	// Acquired: locks are acquired.
	Acquired
	// Resolved: locks of decided transactions are ended.
	Resolved
	// Loaded: the records of a block are written.
	Loaded
)

// Result is the result of an evaluation.
type Result struct {
	Outcome  Outcome
	Response *kvpb.Response
	// Sequence is that of the pending entry on which the answer relies; 0 if it relies on applied
	// entries only.
	Sequence uint64
	// Hold is the timestamp that every clock must have passed before the answer is sent (commit
	// wait); zero if none.
	Hold hlc.Timestamp
	// Until is the first expiry, in wall time, of the live values on which the outcome relies: the
	// outcome holds for a write below it. 0: for any write.
	Until int64
	// Ops are written at one timestamp. Their memory is reused.
	Ops []WriteOp
	// Respond makes the answer after the operations were written, or the locks acquired or ended.
	Respond func(r *Result, q *kvpb.Request, at hlc.Timestamp) *kvpb.Response
	// Record, if not nil, adds further operations to the entry.
	Record func(at hlc.Timestamp, batch *engine.StateBatch) error
	// OnePhase, if not nil, makes the operations a commit in one phase.
	OnePhase *OnePhase
	// Set is the record to be set, Before the record that it replaces; nil if there was none.
	Set, Before *txn.Record
	// Acquisition holds the locks to be acquired.
	Acquisition *Acquisition
	// Loading is the block to be written.
	Loading *Loading
	Resolving
	// told holds the data for the answer to a deletion or an increment.
	told struct {
		existed bool
		number  int64
	}
}

// Resolving holds the locks of decided transactions to be ended.
type Resolving struct {
	// Resolutions name the transactions whose locks are ended. Background is set if the write is
	// answered before all are ended. Ended counts the locks that have been ended.
	Resolutions []*kvpb.Resolution
	Background  bool
	Ended       uint64
	// Within, if not nil, limits the locks to a span. MoreWithin is set if some locks there have
	// not been ended.
	Within     *kvpb.KeySpan
	MoreWithin bool
}

// WriteOp is one version to be written. It aliases the request's memory.
type WriteOp struct {
	Key       []byte
	Value     []byte
	Tombstone bool
	// Lifetime is the value's lifetime; DefaultLifetime in a deletion. Expires is computed from it
	// when the timestamp is chosen.
	Lifetime keys.Lifetime
	Expires  int64
	// CommitWait is set when the timestamp is chosen.
	CommitWait bool
	// WasLive and Prior describe the newest version before. WasLive is set if that version has a
	// value, expired or not, as the statistics count (Prior.HasValue).
	WasLive bool
	Prior   hlc.Timestamp
}

// Begin resets the result of the last write.
func (e *Evaluation) Begin() {
	clear(e.Ops)
	e.Result, e.Transaction = Result{Ops: e.Ops[:0]}, nil
}

// Close ends the evaluation of a number of writes, and closes its iterator on the engine.
func (e *Evaluation) Close() error {
	if e.getter == nil {
		return nil
	}
	g := e.getter
	e.getter = nil
	return g.Close()
}

// Reset forgets everything but memory for reuse. The evaluation must be closed.
func (e *Evaluation) Reset() {
	*e = Evaluation{Result: Result{Ops: e.Ops[:0]}, key: e.key[:0]}
	if cap(e.key) > maxKeptKey {
		e.key = nil
	}
	if cap(e.Ops) > maxKeptOps {
		e.Ops = nil
	}
}

// maxKeptKey and maxKeptOps bound the memory that is kept for reuse.
const (
	maxKeptKey = 64 << 10
	maxKeptOps = 64
)

// Refuse ends the evaluation of a write that has no effect, for a reason that needs no proof of
// leadership.
func (e *Evaluation) Refuse(response *kvpb.Response) {
	e.Outcome, e.Response = Refused, response
}

// Answer ends the evaluation of a write that writes nothing because of what was read. sequence is
// that of the pending entry that decided it; 0 if that entry is applied.
func (e *Evaluation) Answer(response *kvpb.Response, sequence uint64) {
	e.Outcome, e.Response, e.Sequence = Answered, response, sequence
}

// NothingDone is Answer, and ensures that no earlier attempt of the request writes later.
func (e *Evaluation) NothingDone(response *kvpb.Response, sequence uint64) {
	e.Outcome, e.Response, e.Sequence = NothingDone, response, sequence
}

// Duplicate answers a retry. An applied effect is a fact, and needs no proof of leadership as long
// as the leadership epoch lasts.
func (e *Evaluation) Duplicate(response *kvpb.Response, sequence uint64) {
	e.Outcome, e.Response, e.Sequence = Duplicate, response, sequence
}

// Write has the added operations written, and the request answered when they are applied.
func (e *Evaluation) Write(respond func(*Result, *kvpb.Request, hlc.Timestamp) *kvpb.Response) {
	e.Outcome, e.Respond = Written, respond
}

// Wait makes the write wait for a lock at a key, or refuses it. It is called within
// Coordination.Locks.
func (e *Evaluation) Wait(l *concurrency.Lock, key string, until concurrency.Until) {
	if refusal := e.Coordination.Wait(l, key, until); refusal != nil {
		e.Refuse(refusal)
		return
	}
	e.Outcome = Waits
}

// Acquire has locks acquired, and the request answered when they are applied, or at once if they
// are volatile.
func (e *Evaluation) Acquire(a *Acquisition,
	respond func(*Result, *kvpb.Request, hlc.Timestamp) *kvpb.Response) {
	e.Outcome, e.Acquisition, e.Respond = Acquired, a, respond
}

// End has the locks of transactions ended, and the request answered when that is applied.
func (e *Evaluation) End(all []*kvpb.Resolution, background bool,
	respond func(*Result, *kvpb.Request, hlc.Timestamp) *kvpb.Response) {
	e.Outcome, e.Resolutions, e.Background, e.Respond = Resolved, all, background, respond
}

// HoldFor holds the answer for a timestamp, if wanted.
func (e *Evaluation) HoldFor(wanted bool, at hlc.Timestamp) {
	if wanted {
		e.Hold = hlc.Max(e.Hold, at)
	}
}

// HoldSeen holds the answer if it reveals a version before the write that has commit wait.
func (e *Evaluation) HoldSeen(p *Prior) { e.HoldFor(p.Found && p.CommitWait, p.Timestamp) }

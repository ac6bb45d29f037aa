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
// Basis and the Attempt, and calls Begin. A command reads them, and says by one call of Refuse,
// Answer, NothingDone, Duplicate, Write, Decide, Acquire, End or Wait what comes of the write: the
// Result.
type Evaluation struct {
	Basis
	Attempt
	Result

	getter *mvcc.Getter
	// index is an applied index that the getter sees everything up to.
	index uint64
	key   []byte
}

// Basis is what all writes of an evaluation are evaluated on.
type Basis struct {
	// State is the applied state, Pending the writes on top of it.
	State   engine.Reader
	Pending Pending
	// Vacant is what is known of spans without values in the state.
	Vacant     *vacant.Memory
	Descriptor *clusterpb.Partition
	// Coordination is what else transactional commands look at.
	Coordination Coordination
	// PageBytes is about how much one entry holds.
	PageBytes int64
}

// Attempt is what a write brings to its evaluation.
type Attempt struct {
	// Clock is the clock's reading for the write, which is not an earlier one than its session saw.
	Clock hlc.Timestamp
	// Request is the write's id: it is in every version that the write makes.
	Request mvcc.RequestID
	// Since is the timestamp above which all versions are that an attempt of the request can have
	// written.
	Since hlc.Timestamp
	// Session is the highest timestamp that the write's session has seen.
	Session hlc.Timestamp
	// CommitWait is set if the write has commit wait.
	CommitWait bool
	// DefaultTTL is how long a value lives whose write does not say so; 0: it does not expire.
	DefaultTTL time.Duration
	// AtLeast is a timestamp below which the write does not take effect; zero if none is known.
	AtLeast hlc.Timestamp
	// Waited is set if the write has waited for a lock, Aborted if its transaction was aborted
	// meanwhile.
	Waited, Aborted bool
	// Transaction is what a transactional request says; nil for others.
	Transaction *Transaction
}

// Pending is what an evaluation asks of the writes that are not applied. Each call looks at one
// moment: what is applied later was among the pending writes, or is above the applied index that it
// returns.
type Pending interface {
	// Newest is the newest pending write of a user key as the version that it will be, and the
	// sequence of its entry. If there is none, sequence is 0, and the engine has what was written
	// up to the applied index.
	Newest(key []byte) (v mvcc.Version, sequence, applied uint64)
	// Find is the pending write of a user key, above a timestamp, that a request made.
	Find(key []byte, above hlc.Timestamp, request mvcc.RequestID) (own Replayed, applied uint64)
	// Recent is the newest version of a user key without its value and its expiry, if it is known
	// without a look at the engine, applied, and not above a timestamp. expires: it has an expiry.
	Recent(key []byte, until hlc.Timestamp) (v mvcc.Version, expires, ok bool)
	// Above is the lowest timestamp at or above one at which the user key can be written.
	Above(key []byte, ts hlc.Timestamp) hlc.Timestamp
}

// Outcome says what has come of an evaluation.
type Outcome uint8

const (
	// Undecided: nothing was said yet.
	Undecided Outcome = iota
	// Refused: the write has no effect, for a reason that needs no proof.
	Refused
	// Answered: nothing is written, because of what was read.
	Answered
	// NothingDone is Answered, and has to stay true: no attempt of the request may write later.
	NothingDone
	// Duplicate: an earlier attempt of the request has done it.
	Duplicate
	// Written: the operations are to be written.
	Written
	// Decided: the record of the transaction is to be set.
	Decided
	// EpochOver: the leadership epoch is over, and the write without effect.
	EpochOver
	// Waits: it waits for a lock, and is evaluated again.
	Waits
	// Acquired: locks are to be acquired.
	Acquired
	// Resolved: locks of decided transactions are to be ended.
	Resolved
	// Loaded: the records of a block are to be written.
	Loaded
)

// Result is what has come of an evaluation.
type Result struct {
	Outcome  Outcome
	Response *kvpb.Response
	// Sequence is of the pending entry on which the answer rests; 0 if all that is applied.
	Sequence uint64
	// Hold is what the answer has to wait for until it is past on every clock (commit wait); zero
	// if for nothing.
	Hold hlc.Timestamp
	// Until is the first expiry of what the outcome rests on, which was live: the outcome is that
	// of a write below it. 0: of any.
	Until int64
	// Ops are written at one timestamp. They are used again.
	Ops []WriteOp
	// Respond makes the answer to what was written, acquired or ended.
	Respond func(r *Result, q *kvpb.Request, at hlc.Timestamp) *kvpb.Response
	// Record, if not nil, adds what else belongs to the entry.
	Record func(at hlc.Timestamp, batch *engine.StateBatch) error
	// OnePhase, if not nil, is what the operations are besides: a commit in one phase.
	OnePhase *OnePhase
	// Set is the record to be set, Before what it was; nil if there was none.
	Set, Before *txn.Record
	// Acquisition is what is to be acquired.
	Acquisition *Acquisition
	// Loading is the block to be written.
	Loading *Loading
	Resolving
	// told is what the answer to a deletion or an increment tells.
	told struct {
		existed bool
		number  int64
	}
}

// Resolving is what has to be done about locks of decided transactions.
type Resolving struct {
	// Resolutions are of the transactions whose locks are to be ended. Background is set if the
	// write is answered before all are ended. Ended is how many locks have been ended.
	Resolutions []*kvpb.Resolution
	Background  bool
	Ended       uint64
	// Within, if not nil, is where the locks have to be. MoreWithin is set if some locks there have
	// not been ended.
	Within     *kvpb.KeySpan
	MoreWithin bool
}

// WriteOp is one version to be written. Its memory is that of the request.
type WriteOp struct {
	Key       []byte
	Value     []byte
	Tombstone bool
	// Lifetime is that of the value; DefaultLifetime in a deletion. Expires is computed of it when
	// the timestamp is chosen.
	Lifetime keys.Lifetime
	Expires  int64
	// CommitWait is set when the timestamp is chosen.
	CommitWait bool
	// WasLive and Prior are of the newest version before. WasLive: it has a value, expired or not;
	// it is what is counted (Prior.HasValue).
	WasLive bool
	Prior   hlc.Timestamp
}

// Begin forgets the last write.
func (e *Evaluation) Begin() {
	clear(e.Ops)
	e.Result, e.Transaction = Result{Ops: e.Ops[:0]}, nil
}

// Close ends the evaluation of a number of writes: it looks at the engine no more.
func (e *Evaluation) Close() error {
	if e.getter == nil {
		return nil
	}
	g := e.getter
	e.getter = nil
	return g.Close()
}

// Reset forgets everything but memory that can be used again. The evaluation is closed.
func (e *Evaluation) Reset() {
	*e = Evaluation{Result: Result{Ops: e.Ops[:0]}, key: e.key[:0]}
	if cap(e.key) > maxKeptKey {
		e.key = nil
	}
	if cap(e.Ops) > maxKeptOps {
		e.Ops = nil
	}
}

// maxKeptKey and maxKeptOps are how much memory is used again.
const (
	maxKeptKey = 64 << 10
	maxKeptOps = 64
)

// Refuse answers a write that has no effect, for a reason that needs no proof.
func (e *Evaluation) Refuse(response *kvpb.Response) {
	e.Outcome, e.Response = Refused, response
}

// Answer answers a write that writes nothing, because of what was read. sequence is of the pending
// entry that carries what decided it; 0 if that is applied.
func (e *Evaluation) Answer(response *kvpb.Response, sequence uint64) {
	e.Outcome, e.Response, e.Sequence = Answered, response, sequence
}

// NothingDone is Answer, and sees to it that no earlier attempt of the request writes later.
func (e *Evaluation) NothingDone(response *kvpb.Response, sequence uint64) {
	e.Outcome, e.Response, e.Sequence = NothingDone, response, sequence
}

// Duplicate answers a retry. What is applied is a fact, and needs no proof of leadership, as long
// as the leadership epoch lasts.
func (e *Evaluation) Duplicate(response *kvpb.Response, sequence uint64) {
	e.Outcome, e.Response, e.Sequence = Duplicate, response, sequence
}

// Write has the operations written that were added, and answers when they are applied.
func (e *Evaluation) Write(respond func(*Result, *kvpb.Request, hlc.Timestamp) *kvpb.Response) {
	e.Outcome, e.Respond = Written, respond
}

// Wait has the write wait for a lock that is in its way at a key, or refuses it. It is called
// within Coordination.Locks.
func (e *Evaluation) Wait(l *concurrency.Lock, key string, until concurrency.Until) {
	if refusal := e.Coordination.Wait(l, key, until); refusal != nil {
		e.Refuse(refusal)
		return
	}
	e.Outcome = Waits
}

// Acquire has locks acquired, and answers when they are applied, or at once if they are volatile.
func (e *Evaluation) Acquire(a *Acquisition,
	respond func(*Result, *kvpb.Request, hlc.Timestamp) *kvpb.Response) {
	e.Outcome, e.Acquisition, e.Respond = Acquired, a, respond
}

// End has the locks of transactions ended, and answers when that is applied.
func (e *Evaluation) End(all []*kvpb.Resolution, background bool,
	respond func(*Result, *kvpb.Request, hlc.Timestamp) *kvpb.Response) {
	e.Outcome, e.Resolutions, e.Background, e.Respond = Resolved, all, background, respond
}

// HoldFor has the answer wait for a timestamp, if that is wanted.
func (e *Evaluation) HoldFor(wanted bool, at hlc.Timestamp) {
	if wanted {
		e.Hold = hlc.Max(e.Hold, at)
	}
}

// HoldSeen has the answer wait because it tells of the version before the write.
func (e *Evaluation) HoldSeen(p *Prior) { e.HoldFor(p.Found && p.CommitWait, p.Timestamp) }

package eval

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/txn"
)

// garbage is told of versions that expire.
type garbage interface {
	// WillExpire notes when a version expires, in nanoseconds since the epoch; 0: never.
	WillExpire(expires int64)
	// ForgetExpiries forgets all expiries that were noted.
	ForgetExpiries()
}

// Evaluator takes the writes of a replica from the queue to the log. It implements
// concurrency.Owner.
type Evaluator struct {
	*machine.Machine
	garbage garbage
	// commitWait gives every write commit wait.
	commitWait atomic.Bool
	// defaultTTL is the lifetime of a value whose write names none, as a time.Duration; 0: for
	// ever.
	defaultTTL atomic.Int64
	pipeline
}

// New returns the evaluator of a replica.
func New(m *machine.Machine, g garbage, recent proposal.Recent) *Evaluator {
	r := &Evaluator{Machine: m, garbage: g}
	r.queue, r.recent = proposal.NewQueue(&writeBuffers), recent
	return r
}

// SetCommitWait sets whether every write has commit wait, even if the request does not ask for it.
func (r *Evaluator) SetCommitWait(wait bool) { r.commitWait.Store(wait) }

// SetDefaultTTL sets the lifetime of a value whose write names none; 0: the value does not expire.
func (r *Evaluator) SetDefaultTTL(ttl time.Duration) { r.defaultTTL.Store(int64(ttl)) }

// pipeline takes writes from the queue to an entry. machine.Machine.Mu guards it.
type pipeline struct {
	queue proposal.Queue[write]
	// evaluating is set while a goroutine is in evaluateQueue.
	evaluating bool
	// open is the evaluation that fills the building entry, while the entry stays open and no
	// goroutine works on it.
	open *evaluation
	// splitStats counts the part that is to split off; nil if there is no split to come.
	splitStats *reshape.SplitStats
	// written is at or above every version that this pipeline has written.
	written hlc.Timestamp
	recent  proposal.Recent
	records records
}

// QueuedLocked returns the number of writes that wait for their evaluation.
func (r *Evaluator) QueuedLocked() int { return r.queue.Len() }

// RecordsLocked returns the number of transaction records on their way.
func (r *Evaluator) RecordsLocked() int { return len(r.records.proposed) }

// EndSplitStats ends the count of a part that was to split off.
func (r *Evaluator) EndSplitStats(t *reshape.SplitStats) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.splitStats == t {
		r.splitStats = nil
	}
}

// Reasons why a command of this package's own (own_commands.go) was not applied.
var (
	ErrNotLeader = errors.New("this replica does not lead the partition, or not yet; the " +
		"command had no effect")
	ErrOutcomeUnknown = errors.New("leadership was lost; the command may or may not have " +
		"taken effect")
	ErrClockUnbelieved = errors.New("the clock of this node has not been confirmed by those of its " +
		"peers; the command had no effect")
	ErrOverloaded = errors.New("the partition's queue is full; the command had no effect")
)

// errNothingToDo ends the evaluation of a command that has nothing to propose.
var errNothingToDo = errors.New("nothing to do")

// errAgain ends the evaluation of a command for which the entry is full: it goes into the next one.
var errAgain = errors.New("the entry is full")

// lock is a lock of the concurrency manager.
type lock = concurrency.Lock

// records are the transaction records in entries that are being filled, or proposed and not
// applied. machine.Machine.Mu guards them.
type records struct {
	// proposed is nil if there are no such records.
	proposed map[machine.RecordName]proposedRecord
}

type proposedRecord struct {
	record *txn.Record
	// sequence is that of the entry which carries the record.
	sequence uint64
}

// propose notes a record that an entry carries.
func (r *records) propose(name machine.RecordName, record *txn.Record, sequence uint64) {
	if r.proposed == nil {
		r.proposed = make(map[machine.RecordName]proposedRecord)
	}
	r.proposed[name] = proposedRecord{record, sequence}
}

// applied removes the records of an applied entry.
func (r *records) applied(p *machine.Entry) {
	for _, name := range p.Records {
		if r.proposed[name].sequence == p.Sequence {
			delete(r.proposed, name)
		}
	}
	if len(r.proposed) == 0 {
		r.proposed = nil // maps do not shrink
	}
}

// evaluation turns queued writes into one proposal. A replica runs at most one at a time, in one
// goroutine.
//
// When the limit of entries in flight is reached, writes wait in the queue and share an entry
// later. Writes that take turns with volatile locks would not come together that way, since each
// comes only when the one before has been evaluated. So these are evaluated nevertheless, and their
// proposal stays open: it takes in more, and is proposed as soon as there is room (Evaluator.open).
//
// The evaluation holds no lock while it reads the engine. A write that is applied between its look
// at the pending writes and its read of the engine was pending when it looked, and only the
// evaluation adds pending writes; so it misses none.
type evaluation struct {
	// Evaluation holds what the current write is evaluated on, and the outcome.
	command.Evaluation
	// current is the write that is being evaluated.
	current *write
	r       *Evaluator
	// proposal is the entry that is being filled; nil if there is none.
	proposal *machine.Entry
	premises
	groupCommit
	draft
	// pass takes the next proposal, if only the client of the pass waits for it; nil if there is no
	// pass.
	pass Pass
	// later has the current write evaluated once more, for a later timestamp.
	later bool
	// over is set when the epoch has ended: nothing of this evaluation takes effect.
	over bool
	// writes are those taken from the queue; again are those that must be evaluated once more, and
	// return to the front of the queue.
	writes, again []write
	// ready are answers that need not wait.
	ready []machine.Answer
	locksTouched
}

// premises hold for an evaluation since it has taken writes from the queue.
type premises struct {
	epoch leadership.Epoch
	now   time.Time
	// livenessFloor and lowDue are those of the leadership.
	livenessFloor int64
	lowDue        bool
	// leased is set if this replica held the lease after the writes were queued and before anything
	// was read for them. An answer that rests on reading alone may then be sent at once; otherwise
	// it is sent when the entry has been applied.
	leased bool
	space  diskSpace
	// reserve is the share of the reserve that may be used if space is spaceNowhere: see
	// Evaluator.reserve.
	reserve   group.Share
	logBehind bool
}

// draft holds what becomes an entry.
type draft struct {
	kind proposal.Kind
	// splitStats counts the part that a split to come separates; nil if there is no split to come.
	splitStats *reshape.SplitStats
	// change is the configuration that the entry leads to; nil if it changes no replicas.
	change *group.Configuration
	batch  *engine.StateBatch
	delta  proposal.Delta
	// highest is the highest timestamp in the batch.
	highest hlc.Timestamp
	// slab holds unused pending writes.
	slab []proposal.Write
	// internal is the part of the entry that commands fill which no client has sent.
	internal proposal.Entry
	// size estimates the bytes of the entry; ends estimates those that release locks. A request
	// that releases locks is small even if the locks are many.
	size, ends int
}

// locksTouched is the work on locks that an evaluation leaves.
type locksTouched struct {
	// woken have waited for volatile locks that were released.
	woken []*concurrency.Waiter
	// reevaluate is set if requests that wait for locks have to look again.
	reevaluate bool
	work       concurrency.Work
}

// release returns the evaluation to the pool.
func (e *evaluation) release() {
	e.Reset()
	*e = evaluation{Evaluation: e.Evaluation, writes: e.writes[:0], ready: e.ready[:0],
		again: e.again[:0]}
	evaluations.Put(e)
}

// groupCommit says how long the proposal of an evaluation has gathered writes.
type groupCommit struct {
	opened time.Time
	// line is the greatest number of requests that waited for a lock which was handed over.
	line int
	// plain is set if the entry has writes that are not transactions'.
	plain bool
	// timed is set when a timer for the end of gathering runs.
	timed bool
}

// diskSpace says which disks of a partition's replicas have space for a write.
type diskSpace int

const (
	// spaceEnough: the leader, and a quorum of the replicas, have space as far as is known.
	spaceEnough diskSpace = iota
	// spaceElsewhere: the leader's disk is full, and a quorum of the replicas has space. The leader
	// hands over to a replica with space.
	spaceElsewhere
	// spaceNowhere: no quorum of the replicas has space.
	spaceNowhere
)

// A client's requests go through a replica in three calls: Take, Evaluate, Serve. The caller is one
// pass of a message through a node; the message may have requests for other replicas as well. It
// calls Take for all replicas, then Evaluate for those with writes, then Serve for all.

// Pass takes the proposals that are evaluated for a client's message.
type Pass interface {
	// Client returns the id of the client that sent the message.
	Client() uint64
	// Propose is Group.Propose, but the group may handle the data when the pass has had the writes
	// of other replicas evaluated too.
	Propose(term uint64, data []byte) error
}

// openBatch makes a batch if there is none.
func (e *evaluation) openBatch() {
	if e.batch == nil {
		e.batch = e.r.State.NewBatch()
	}
}

// transactional makes the entry one that may change locks and records.
func (e *evaluation) transactional() {
	e.openBatch()
	e.kind, e.proposal.Effects = proposal.KindTransaction, true
}

// takeSlab returns n pending writes to be filled.
func (e *evaluation) takeSlab(n int) []proposal.Write {
	if n > len(e.slab) {
		return make([]proposal.Write, n)
	}
	writes := e.slab[:n:n]
	e.slab = e.slab[n:]
	return writes
}

// write is one queued command: a client's, or one of this package's own.
type write struct {
	pending config.Pending
	command *command.Command
	session hlc.Timestamp
	// size estimates how many bytes the command adds to an entry.
	size int
	// x is set if the command concerns transactions, its own or others.
	x *transactional
	// internal is set, and pending is not, for a command of this package's own.
	internal *internalCommand
}

// internalCommand is a command that no client has sent. It is evaluated in its turn.
type internalCommand struct {
	kind proposal.Kind
	// shared is set if the command may share an entry of proposal.KindTransaction with others, and
	// be evaluated while writes are pending.
	shared bool
	// thaws is set if the command ends the freeze of the partition. It is evaluated during the
	// freeze, before all that waits for its end.
	thaws bool
	// evaluate fills the evaluation's batch, delta and so on. It returns false if there is nothing
	// to propose; then done is not called.
	evaluate func(e *evaluation, p *proposal.Entry) (propose bool, err error)
	// done is called once, after the entry has been applied, or with the reason why it was not.
	done func(error)
}

// transactional holds what a write needs besides if it concerns transactions.
type transactional struct {
	command.Transaction
	// detached is set if the request has a buffer of its own.
	detached bool
	// history is what the write has met while it waited for locks.
	history concurrency.History
	// resolved counts the locks that earlier entries of a Resolve have released; last is the
	// sequence of the latest of these entries.
	resolved, last uint64
}

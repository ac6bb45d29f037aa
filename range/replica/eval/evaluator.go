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

// garbage is what is told of versions with an expiry.
type garbage interface {
	// WillExpire notes that a version expires at a time, in nanoseconds since the epoch; 0: never.
	WillExpire(expires int64)
	// ForgetExpiries forgets all of them.
	ForgetExpiries()
}

// Evaluator takes the writes of a replica from the queue to the log. It implements
// concurrency.Owner.
type Evaluator struct {
	*machine.Machine
	garbage garbage
	// commitWait: every write has commit wait.
	commitWait atomic.Bool
	// defaultTTL is a time.Duration: how long a value lives whose write does not say so; 0: for ever.
	defaultTTL atomic.Int64
	pipeline
}

// New makes that of a replica.
func New(m *machine.Machine, g garbage, recent proposal.Recent) *Evaluator {
	r := &Evaluator{Machine: m, garbage: g}
	r.queue, r.recent = proposal.NewQueue(&writeBuffers), recent
	return r
}

// SetCommitWait sets whether every write has commit wait, also one that does not ask for it.
func (r *Evaluator) SetCommitWait(wait bool) { r.commitWait.Store(wait) }

// SetDefaultTTL sets how long a value lives whose write does not say so; 0: it does not expire.
func (r *Evaluator) SetDefaultTTL(ttl time.Duration) { r.defaultTTL.Store(int64(ttl)) }

// pipeline is the way of writes from the queue to an entry. machine.Machine.Mu guards it.
type pipeline struct {
	queue proposal.Queue[write]
	// evaluating: a goroutine is in evaluateQueue.
	evaluating bool
	// open is the evaluation that fills the entry that is building, if it stays open and no goroutine
	// is at work.
	open *evaluation
	// splitStats count a part that is to split off; nil: no part is.
	splitStats *reshape.SplitStats
	// written is at or above every version that was put there.
	written hlc.Timestamp
	recent  proposal.Recent
	records records
}

// QueuedLocked is how many writes wait for their evaluation.
func (r *Evaluator) QueuedLocked() int { return r.queue.Len() }

// RecordsLocked is how many transaction records are on their way.
func (r *Evaluator) RecordsLocked() int { return len(r.records.proposed) }

// EndSplitStats counts a part that was to split off no more.
func (r *Evaluator) EndSplitStats(t *reshape.SplitStats) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.splitStats == t {
		r.splitStats = nil
	}
}

// Commands that no client has sent: how the rooms that change a partition by entries of their own
// have these evaluated.

// What becomes of a command of this package's own (own_commands.go) that is not
// applied.
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

// errAgain has a command evaluated again for the next entry: this one is full.
var errAgain = errors.New("the entry is full")

// What the concurrency manager leaves to be done is done here, without the replica's lock.

// Locks are the concurrency manager's.
type lock = concurrency.Lock

// records are the transaction records that are in an entry which is proposed, or being filled, and
// not applied. machine.Machine.Mu guards them.
type records struct {
	// proposed is nil if there are none.
	proposed map[machine.RecordName]proposedRecord
}

type proposedRecord struct {
	record *txn.Record
	// sequence is of the entry that carries it.
	sequence uint64
}

// propose notes a record that an entry carries.
func (r *records) propose(name machine.RecordName, record *txn.Record, sequence uint64) {
	if r.proposed == nil {
		r.proposed = make(map[machine.RecordName]proposedRecord)
	}
	r.proposed[name] = proposedRecord{record, sequence}
}

// applied takes the records of an applied entry out of those proposed.
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

// evaluation turns queued writes into one proposal. There is at most one at work in a replica; it
// belongs to one goroutine.
//
// When as much is in flight as may be, writes wait in the queue and share an entry later. Those
// that take turns with volatile locks would not come together that way, for the next comes only
// when the one before has been evaluated. They are evaluated all the same, and their proposal stays
// open: it takes in more, and is proposed as soon as there is room (Evaluator.open).
//
// It holds no lock while it reads the engine. That is sound: what is applied meanwhile was pending
// when it looked there, and only it adds pending writes.
type evaluation struct {
	// What the write at hand is evaluated on, and what has come of it.
	command.Evaluation
	// current is the write at hand.
	current *write
	r       *Evaluator
	// proposal is the entry that is filled; nil if there is none.
	proposal *machine.Entry
	premises
	groupCommit
	draft
	// pass is where the next proposal is left, if nothing but its client waits for it; nil:
	// nowhere.
	pass Pass
	// later: the write at hand is evaluated again, for a later timestamp.
	later bool
	// over: the epoch ended, nothing of this has an effect.
	over bool
	// writes are those taken from the queue, again those that must be evaluated once more: they
	// return to the front of the queue.
	writes, again []write
	// ready are answers that wait for nothing.
	ready []machine.Answer
	locksTouched
}

// premises are what an evaluation takes for given, since it has taken writes from the queue.
type premises struct {
	epoch leadership.Epoch
	now   time.Time
	// livenessFloor and lowDue are the leadership's.
	livenessFloor int64
	lowDue        bool
	// leased: this replica held the lease after the writes were queued and before anything was read
	// for them. What is decided by reading alone may then be answered at once; otherwise it is
	// answered when the entry has been applied.
	leased bool
	space  diskSpace
	// reserve is what finds room if there is spaceNowhere: see Evaluator.reserve.
	reserve   group.Share
	logBehind bool
}

// draft is what becomes an entry.
type draft struct {
	kind proposal.Kind
	// splitStats, if not nil, is of a split that is to come.
	splitStats *reshape.SplitStats
	// change, if not nil, is the configuration that the entry leads to.
	change *group.Configuration
	batch  *engine.StateBatch
	delta  proposal.Delta
	// highest is the highest timestamp in the batch.
	highest hlc.Timestamp
	// slab is where the next pending writes come from.
	slab []proposal.Write
	// internal is what commands that no client has sent add to the entry.
	internal proposal.Entry
	// size is about how large the entry is, and ends how large what ends locks is of it: the request
	// for that is small, whatever the locks are.
	size, ends int
}

// locksTouched is what an evaluation leaves to be done about locks.
type locksTouched struct {
	// woken have waited for volatile locks that were released.
	woken []*concurrency.Waiter
	// reevaluate: what waits for locks is to be looked at again.
	reevaluate bool
	work       concurrency.Work
}

// release gives the evaluation back.
func (e *evaluation) release() {
	e.Reset()
	*e = evaluation{Evaluation: e.Evaluation, writes: e.writes[:0], ready: e.ready[:0],
		again: e.again[:0]}
	evaluations.Put(e)
}

// groupCommit says how long the proposal that an evaluation fills has waited for more writes.
type groupCommit struct {
	opened time.Time
	// line is how many waited for the lock that was handed over, at most.
	line int
	// plain: there is something in it of others than transactions.
	plain bool
	// timed: a timer has been set for the end of gathering.
	timed bool
}

// diskSpace says where the disks of a partition's replicas have space for a write.
type diskSpace int

const (
	// spaceEnough: the leader and, with it, a quorum of the replicas have space, as far as is known.
	spaceEnough diskSpace = iota
	// spaceElsewhere: the leader's disk is full, and a quorum of the replicas has space. The leader
	// hands over to a replica with space.
	spaceElsewhere
	// spaceNowhere: no quorum of the replicas has space.
	spaceNowhere
)

// The way of a client's requests through a replica: Take, Evaluate, Serve. The caller is one pass
// of a message through a node, which may have requests for other replicas as well. It calls Take
// for all of them, then Evaluate for those with writes, then Serve for all.

// Pass is what the evaluation for a client's message leaves its proposals with.
type Pass interface {
	// Client is whose message it is.
	Client() uint64
	// Propose is Group.Propose, but nothing need be done about the data before the pass has had the
	// writes of other replicas evaluated too.
	Propose(term uint64, data []byte) error
}

// openBatch makes sure that there is a batch.
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
	// size is about how many bytes it adds to an entry.
	size int
	// x is set if it has to do with transactions, its own or others'.
	x *transactional
	// internal is set instead of pending for a command of this package's own.
	internal *internalCommand
}

// internalCommand is evaluated in its turn, like a client's.
type internalCommand struct {
	kind proposal.Kind
	// shared: it may share an entry, of proposal.KindTransaction, with others, and be evaluated
	// with writes pending.
	shared bool
	// thaws: it ends the freeze of the partition, and is evaluated although that lasts, before all
	// that waits for that.
	thaws bool
	// evaluate fills the evaluation's batch, delta and so on. It returns false, after which done is
	// not called, if there is nothing to propose.
	evaluate func(e *evaluation, p *proposal.Entry) (propose bool, err error)
	// done is called once: after the entry has been applied, or with the reason why it was not.
	done func(error)
}

// transactional is what a write carries besides if it has to do with transactions.
type transactional struct {
	command.Transaction
	// detached: the request has a buffer of its own.
	detached bool
	// history is what it has met while it waited for locks.
	history concurrency.History
	// resolved counts the locks that earlier entries of a Resolve have ended, last is the last of
	// these entries.
	resolved, last uint64
}

package read

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/alarm"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// evaluates is what a reader needs of the writes of its replica.
type evaluates interface {
	// Kick has a proposal that gathers go on its way, because reads wait for it.
	Kick(callback bool)
	// Do does what is to be done about locks.
	Do(*concurrency.Work)
}

// Reader serves the reads of a replica.
type Reader struct {
	*machine.Machine
	evals evaluates
	// reads are those that wait for a read index, or for what is closed; machine.mu guards them.
	reads waitingReads
	// heldReads are those that commit wait holds back.
	heldReads commitwait.Queue
}

// New makes that of a replica.
func New(m *machine.Machine, evals evaluates) *Reader {
	r := &Reader{Machine: m, evals: evals}
	r.heldReads.Init(&m.Node.Waits, m.Node.MaxWaitingReads, m.Manual)
	return r
}

// waitingReads are the reads that wait for an entry to be applied, for a read index, or for a
// timestamp to be closed here. machine.Machine.Mu guards it.
type waitingReads struct {
	// confirming: a read index is asked for. next are the reads that came after that, and need
	// another one.
	confirming bool
	next       []*read
	// closed wait for timestamps to be closed, or for an index at which a leader has admitted them
	// (closed_read.go). announced is of reads that this replica has admitted as a leader
	// (admission.go).
	closed    []*read
	announced announcement
}

// confirm has a read wait for a read index. It returns true if that is to be asked for.
func (w *waitingReads) confirm(rd *read) (ask bool) {
	w.next = append(w.next, rd)
	ask = !w.confirming
	w.confirming = true
	return ask
}

// ask returns the reads for which a read index is to be asked for now, nil if there are none. Those
// that come while it is under way need another: it speaks for what was committed when it was asked
// for.
func (w *waitingReads) ask() []*read {
	reads := w.next
	w.next = nil
	w.confirming = len(reads) > 0
	return reads
}

// drain takes out those for which no read index is asked for yet.
func (w *waitingReads) drain() []*read {
	reads := w.next
	w.next = nil
	return reads
}

// How a read is served. The order of the steps is what makes it linearisable:
//
//  1. chosen = a reading of the clock.
//  2. Leadership is proved: the lease stands at some moment t, or a quorum confirms this leader at
//     some moment t.
//  3. Under the lock: this replica leads at the term of the proof and is serving. The read takes
//     its timestamp T, the later of chosen and the highest applied timestamp, notes itself in the
//     timestamp cache, and looks for pending writes at or below T.
//  4. It waits for that (spans), or reads below it (a single key).
//  5. It reads the engine at T. No further proof is needed, however long the process may have been
//     paused since 2:
//
// Everything acknowledged before t is visible. What earlier leaders acknowledged is in the log
// before this term's first entry, which is applied; what this one acknowledged was applied before;
// and no later leader existed before t. Its timestamp is not above T, because the highest applied
// timestamp is not.
//
// Nothing at or below T is written later. By this leader: its writes ask the timestamp cache under
// the same lock. By a later one: its timestamps begin above its clock plus MaxAhead, read after t,
// and above everything applied. That is above T too, for if T is ahead of this server's physical
// clock it is served only as long before the end of the lease (lease_check.go). So what is read is
// the state at T for ever, and it is at least as new as the state at t, which lies between the
// request and its answer.
//
// After 5 the garbage collection threshold is compared with T: it is published before anything
// below it is removed. So is the generation of the descriptor: what splits off may leave this node
// as soon as that is applied here.
type read struct {
	r       *Reader
	pending config.Pending
	command *command.Command
	// part is set if it is one of several partitions that are read together: it is not served by
	// itself.
	part part
	// momentOnly: nothing is read. It is ready when its timestamp is known; see answerMoment.
	momentOnly bool
	wanted
	// term is of the leadership that admitted it, for a read that waits for a read index.
	term uint64
	placed
	// restarts counts how often it began anew.
	restarts int
	// closed is set if any replica may answer.
	closed *closedReading
	// changes is set for a read of changes.
	changes *changesReading
	// seen is the highest timestamp of the versions with commit wait that it has seen; zero if
	// there were none.
	seen hlc.Timestamp

	// Because of transactions; never nil once it is checked, and shared by the reads that need none
	// of it.
	*lockedReading
}

// wanted is when a read is to be of.
type wanted struct {
	session hlc.Timestamp
	// at is the timestamp that the client asked for; zero: the latest.
	at hlc.Timestamp
	// uncertainUntil is the client's uncertainty limit, with at.
	uncertainUntil hlc.Timestamp
	chosen         hlc.Timestamp
}

// placed is where a read stands between the writes, once it is registered.
type placed struct {
	timestamp hlc.Timestamp
	limit     hlc.Timestamp
	// expiries is what limit is for expiries.
	expiries   hlc.Timestamp
	epoch      leadership.Epoch
	descriptor *clusterpb.Partition
	// unplaced: it waits for the partition to be what it will be, and is in no timestamp cache.
	unplaced bool
}

func (rd *read) Asked() *kvpb.Request { return rd.pending.Request }

func (rd *read) Refuse(response *kvpb.Response) { rd.r.endRead(rd, response) }

// part is one of several partitions that are read together. It takes what comes of its read,
// instead of a client: one call of refused, of ready, or of waits that returned false.
type part interface {
	// refused takes the answer of a partition that is not read.
	refused(*kvpb.Response)
	// ready says that the partition can be read; the read counts as active until its replica is
	// left.
	ready()
	// waits says that the read has to wait for something before it is ready. If it returns false
	// the read is over instead.
	waits() bool
}

// endRead answers a read.
func (r *Reader) endRead(rd *read, response *kvpb.Response) {
	r.answerRead(rd, response)
	r.Exit()
}

// answerRead is endRead for a read that does not count as active yet. The read is not used after
// it.
func (r *Reader) answerRead(rd *read, response *kvpb.Response) {
	if rd.part != nil {
		r.Node.Metrics.Answered(rd.command, response)
		rd.part.refused(response)
		return
	}
	r.Reply(rd.pending, rd.command, response)
}

// refuseRead answers a read that cannot be served any more: what it waited for has an unknown
// outcome.
func (r *Reader) refuseRead(rd *read) {
	r.endRead(rd, r.Refuse.NotLeader(rd.pending.Request))
}

// announcement is what the other replicas have been told to be committed, for reads that were
// admitted. machine.Machine.Mu guards it.
type announcement struct {
	// told is up to where, and wanted up to where they are to be told. busy: they are being told.
	told, wanted uint64
	busy         bool
}

// want has the others told up to an index. It returns true if that is to be done now.
func (a *announcement) want(index uint64) (now bool) {
	a.wanted = max(a.wanted, index)
	return a.next()
}

// next says that the others are to be told now.
func (a *announcement) next() bool {
	if a.busy || a.wanted <= a.told {
		return false
	}
	a.busy, a.told = true, a.wanted
	return true
}

// over notes that the others have been told; err: they may not have been, which does no harm.
func (a *announcement) over(err error) (again bool) {
	a.busy = false
	if err != nil {
		a.wanted = a.told
	}
	return a.next()
}

// Reads that any replica answers, from what it has applied.
//
// A read at a timestamp T that is closed here (closing.go) needs no leader. Whatever is ever
// written at or below T, by whichever leader, is applied here, or has a lock here that was prepared
// at or below T: then its transaction may commit at or below T, and the read does not pass.
//
// INVARIANT: what is closed, and which locks there are, is looked at under the lock under which
// both are published, and the engine is read after that. An entry that is applied in between writes
// above T, or releases a lock that was prepared above T.
//
// INVARIANT: what is closed is not above the clock of the leader that closed it, less the lag, so
// versions with commit wait at or below T may be seen as soon as T has passed on all clocks; reads
// that see one wait for that like those of a leader.

// Nor does it need one at a timestamp at which a leader has taken it in: see admission.go.

// closedReading is what is known of a read that any replica may answer.
type closedReading struct {
	// atLeast is the lowest timestamp at which it may be read.
	atLeast hlc.Timestamp
	// until is how long it waits for what is not closed, or locked.
	until time.Time
	timer alarm.Timer
	// need is what it waits to be closed; locked: it waits for a lock that is in its way.
	need   hlc.Timestamp
	locked bool
	// admitted: a leader has taken it in, and what it needs is that the log is applied up to index
	// (admission.go).
	admitted bool
	index    uint64
}

func (c *closedReading) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// Reads of changes.
//
// What is closed at a replica, below all locks in the span that were prepared at or below it, is
// resolved: no version of the span is written there any more, by a transaction neither. So a read
// of the versions up to there is complete for ever, and the feed goes on above it. That is the
// timestamp at which any replica reads (closed_read.go), and a leader too chooses it like that: a
// feed that follows the present must not push the transactions and writes of the present.
//
// A request may be held while there is nothing to answer with. That nothing was written is known
// without reading the engine: no version lies above the highest applied timestamp. Otherwise what
// has been resolved meanwhile is read, as soon as it has all that is applied by now, or a step of
// it.
//
// INVARIANT: the garbage collection threshold is compared with the timestamp above which versions
// were asked for, after the engine was read: what is above it, and not collected before, is
// complete.

// changesReading is what a read of changes wants, and how far it has got while it was held.
type changesReading struct {
	// after is the timestamp above which versions are wanted.
	after hlc.Timestamp
	// quiet is up to where it is known that there are none; at or above after.
	quiet hlc.Timestamp
	// until is how long it may be held.
	until time.Time
	// idle: it waits for something to be written. last: it is answered now, with nothing if there is
	// nothing.
	idle, last bool
}

// What becomes of a read because of transactions. Which locks are in its way, and for what it
// waits, is said in concurrency.Read.

// lockedReading is what a read needs because of transactions.
type lockedReading struct {
	// context is the request's; nil if it has none.
	context *kvpb.ReadContext
	// wait is the read as one that may wait for locks.
	wait concurrency.Read
	// movable: what is uncertain is read at a later timestamp.
	movable bool
	// under is the leadership under which it has acquired volatile locks here; nil: it has none.
	under *kvpb.Leadership
	// observed: what this node's leaderships gave above it was given after the reading transaction
	// began.
	observed hlc.Timestamp
}

// plainReading is of reads without a context that have met no lock. It is never changed.
var plainReading lockedReading

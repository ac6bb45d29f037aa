package read

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// evaluates is what a reader needs of the evaluator of its replica.
type evaluates interface {
	// Kick has a proposal that gathers writes proposed, because reads wait for it.
	Kick(callback bool)
	// Do does work on locks.
	Do(*concurrency.Work)
}

// Reader serves the reads of a replica.
type Reader struct {
	*machine.Machine
	evals evaluates
	// reads are those that wait for a read index or a closed timestamp; machine.Mu guards them.
	reads waitingReads
	// heldReads are the reads that commit wait holds back.
	heldReads commitwait.Queue
}

// New returns the reader of a replica.
func New(m *machine.Machine, evals evaluates) *Reader {
	r := &Reader{Machine: m, evals: evals}
	r.heldReads.Init(&m.Node.Waits, m.Node.MaxWaitingReads, m.Manual)
	return r
}

// waitingReads are the reads that wait for an entry to be applied, for a read index, or for a
// timestamp to be closed here. machine.Machine.Mu guards them.
type waitingReads struct {
	// confirming is set while a read index is asked for. next are the reads that came after that,
	// and need another one.
	confirming bool
	next       []*read
	// closed are reads that wait for closed timestamps, or for an index at which a leader has
	// admitted them (closed_read.go). announced concerns reads that this replica has admitted as a
	// leader (admission.go).
	closed    []*read
	announced announcement
}

// confirm makes a read wait for a read index. It returns true if the caller has to ask for one.
func (w *waitingReads) confirm(rd *read) (ask bool) {
	w.next = append(w.next, rd)
	ask = !w.confirming
	w.confirming = true
	return ask
}

// ask returns the reads for which a read index is to be asked for now, nil if there are none. Reads
// that come while an index is asked for need another: an index covers what was committed when it
// was asked for.
func (w *waitingReads) ask() []*read {
	reads := w.next
	w.next = nil
	w.confirming = len(reads) > 0
	return reads
}

// drain takes out the reads for which no read index is asked for yet.
func (w *waitingReads) drain() []*read {
	reads := w.next
	w.next = nil
	return reads
}

// How a read is served. The order of the steps makes it linearisable:
//
//  1. chosen = a reading of the clock.
//  2. Leadership is proved: the lease stands at some moment t, or a quorum confirms this leader at
//     some moment t.
//  3. Under the lock: this replica leads at the term of the proof and is serving. The read takes
//     its timestamp T, the later of chosen and the highest applied timestamp, notes itself in the
//     timestamp cache, and looks for pending writes at or below T.
//  4. It waits for those writes (spans), or reads below them (a single key).
//  5. It reads the engine at T. No further proof is needed, however long the process may have been
//     paused since step 2.
//
// Everything acknowledged before t is visible. What earlier leaders acknowledged is in the log
// before this term's first entry, which is applied; what this leader acknowledged was applied
// before; and no later leader existed before t. All of it lies at or below T, because the highest
// applied timestamp does.
//
// Nothing at or below T is written later. Writes of this leader ask the timestamp cache under the
// same lock. Timestamps of a later leader begin above its clock plus MaxAhead, read after t, and
// above everything applied. That is above T too: if T is ahead of this server's physical clock, the
// read is served only if the lease ends late enough (lease_check.go). So the read returns the state
// at T, which never changes again, and is at least as new as the state at t, which lies between the
// request and its answer.
//
// After step 5 the garbage collection threshold is compared with T: it is published before any
// version below it is removed. The generation of the descriptor is compared too: a part that has
// split off may leave this node as soon as the split is applied here.
type read struct {
	r       *Reader
	pending config.Pending
	command *command.Command
	// part is set if the partition is one of several that are read together: the read does not read
	// the engine by itself.
	part part
	// timestampOnly is set if nothing is read: the read is ready when its timestamp is known; see
	// answerTimestamp.
	timestampOnly bool
	wanted
	// term is that of the leadership that admitted the read, while it waits for a read index.
	term uint64
	placed
	// restarts counts how often the read started again.
	restarts int
	// closed is set if any replica may answer.
	closed *closedReading
	// changes is set for a read of changes.
	changes *changesReading
	// seen is the highest timestamp of the versions with commit wait that the read has seen; zero
	// if there were none.
	seen hlc.Timestamp

	// lockedReading is never nil once the read is checked. Reads that need no state of it share
	// one.
	*lockedReading
}

// wanted says of which time the client wants to read.
type wanted struct {
	session hlc.Timestamp
	// at is the timestamp that the client asked for; zero: the latest state.
	at hlc.Timestamp
	// uncertainUntil is the client's uncertainty limit, if at is set.
	uncertainUntil hlc.Timestamp
	chosen         hlc.Timestamp
}

// placed says where a registered read stands between the writes.
type placed struct {
	timestamp hlc.Timestamp
	limit     hlc.Timestamp
	// expiries is the limit for expiries.
	expiries   hlc.Timestamp
	epoch      leadership.Epoch
	descriptor *clusterpb.Partition
	// unplaced is set while the read waits for a split, merge or freeze, and is in no timestamp
	// cache.
	unplaced bool
}

func (rd *read) Asked() *kvpb.Request { return rd.pending.Request }

func (rd *read) Refuse(response *kvpb.Response) { rd.r.endRead(rd, response) }

// part is one of several partitions that are read together. It takes the outcome of its read
// instead of a client: one call of refused, of ready, or of waits that returned false.
type part interface {
	// refused takes the answer of a partition that is not read.
	refused(*kvpb.Response)
	// ready reports that the partition can be read; the read counts as active until its replica is
	// left.
	ready()
	// waits reports that the read has to wait before it is ready. If it returns false, the read is
	// over instead.
	waits() bool
}

// endRead answers a read.
func (r *Reader) endRead(rd *read, response *kvpb.Response) {
	r.answerRead(rd, response)
	r.Exit()
}

// answerRead is endRead for a read that does not count as active yet. The read must not be used
// afterwards.
func (r *Reader) answerRead(rd *read, response *kvpb.Response) {
	if rd.part != nil {
		r.Node.Metrics.Answered(rd.command, response)
		rd.part.refused(response)
		return
	}
	r.Reply(rd.pending, rd.command, response)
}

// refuseRead answers a read that cannot be served any more: the entry that it waited for has an
// unknown outcome.
func (r *Reader) refuseRead(rd *read) {
	r.endRead(rd, r.Refuse.NotLeader(rd.pending.Request))
}

// announcement says up to where the other replicas were told what is committed, for reads that were
// admitted. machine.Machine.Mu guards it.
type announcement struct {
	// told is the index up to which they were told, wanted that up to which they have to be. busy
	// is set while they are being told.
	told, wanted uint64
	busy         bool
}

// want asks for the others to be told up to an index. It returns true if the caller has to do it
// now.
func (a *announcement) want(index uint64) (now bool) {
	a.wanted = max(a.wanted, index)
	return a.next()
}

// next reports that the others have to be told now.
func (a *announcement) next() bool {
	if a.busy || a.wanted <= a.told {
		return false
	}
	a.busy, a.told = true, a.wanted
	return true
}

// over notes that the others were told; with an error they may not have been, which does no harm.
func (a *announcement) over(err error) (again bool) {
	a.busy = false
	if err != nil {
		a.wanted = a.told
	}
	return a.next()
}

// Reads that any replica answers, from what it has applied.
//
// A read at a timestamp T that is closed here (package closing) needs no leader. Whatever any
// leader writes at or below T is applied here, or is a lock here that was prepared at or below T:
// then its transaction may commit at or below T, and the read does not pass.
//
// INVARIANT: the closed timestamp and the locks are read under the lock under which both are
// published, and the engine is read after that. An entry that is applied in between writes above T,
// or releases a lock that was prepared above T.
//
// INVARIANT: a closed timestamp is not above the clock of the leader that closed it, less the lag,
// so versions with commit wait at or below T may be seen as soon as T has passed on all clocks;
// reads that see such a version wait for that like those of a leader.

// A read at a timestamp at which a leader has admitted it needs no leader either: see admission.go.

// closedReading is the state of a read that any replica may answer.
type closedReading struct {
	// atLeast is the lowest timestamp at which it may be read.
	atLeast hlc.Timestamp
	// until is the end of the time that the read waits for a closed timestamp, or for a lock.
	until time.Time
	timer timer.Timer
	// need is the timestamp that has to be closed. locked is set if the read waits for a lock.
	need   hlc.Timestamp
	locked bool
	// admitted is set if a leader has admitted the read; then it waits until the log is applied up
	// to index (admission.go).
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
// A timestamp is resolved when it is closed at a replica and below all locks of the span that were
// prepared at or below it: no version of the span is written at or below it any more, not even by a
// transaction. So a read of the versions up to there is complete for ever, and the feed goes on
// above it. Any replica reads changes at that timestamp (closed_read.go), and so does a leader: a
// feed that follows the present must not push transactions and writes out of its way.
//
// A request may be held while there is nothing to answer with. That nothing was written is known
// without reading the engine: no version lies above the highest applied timestamp. Otherwise the
// engine is read as soon as everything applied by now is resolved, or a step of it (changesStep).
//
// INVARIANT: after the engine was read, the garbage collection threshold is compared with the
// timestamp above which versions were asked for: if it is not above that, no version was collected.

// changesReading is the state of a read of changes: what it asks for, and how far it has come while
// it was held.
type changesReading struct {
	// after is the timestamp above which versions are wanted.
	after hlc.Timestamp
	// quiet is the timestamp up to which it is known that there are no versions; at or above after.
	quiet hlc.Timestamp
	// until is the end of the time that the read may be held.
	until time.Time
	// idle is set while the read waits for a write. last is set if it has to be answered now, even
	// with nothing.
	idle, last bool
}

// What a read does because of transactions. concurrency.Read says which locks are in its way, and
// for what it waits.

// lockedReading is the state of a read that concerns transactions.
type lockedReading struct {
	// context is the request's; nil if it has none.
	context *kvpb.ReadContext
	// wait is the read in the form in which it may wait for locks.
	wait concurrency.Read
	// movable is set if the read may move to a later timestamp when it meets something uncertain.
	movable bool
	// under is the leadership under which the transaction has acquired volatile locks here; nil if
	// it has none.
	under *kvpb.Leadership
	// observed is a timestamp: those that this node's leaderships gave above it were given after
	// the reading transaction began.
	observed hlc.Timestamp
}

// plainReading is shared by reads without a context that have met no lock. It is never changed.
var plainReading lockedReading

package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// leadership is what a replica knows of its own leading: what the group said, whether it serves,
// and what lies before its time. It is a set of state transitions without a lock, a clock or a
// group.
type leadership struct {
	// Leadership is what the group said last.
	group.Leadership
	// number is of the present epoch.
	number uint64
	// serving: this replica leads, and everything that earlier leaders, or earlier epochs, left in
	// the log is applied.
	serving bool
	// firstTerm is the term of the log's first entry, 0 if this process has not seen it applied. A
	// partition that has split off has a log of its own; what was served before is closed.
	firstTerm uint64
	// ledTerm is the latest term in which this replica led.
	ledTerm    uint64
	handedOver handedOver
	// widened is when the partition consumed another one, by this node's clock: what that one's
	// leader had heard of transactions is not known here.
	widened int64
	// livenessFloor is since when transactions' heartbeats have been heard, by the same clock; 0:
	// they always have, by this leader or one that handed over to it. After an election it is
	// earlier than that, by what a leader gives less than all the time that a client may be silent
	// (electedTime).
	livenessFloor int64
	// barrier is the sequence of the proposal that ends the wait for what an earlier epoch of the
	// same term left in the log; 0: there is nothing to wait for. It is to be proposed if
	// barrierDue is set.
	barrier    uint64
	barrierDue bool
	// successor is the replica to hand over to once the barrier is proposed; 0: none.
	successor keys.ReplicaID
	// handingOver: it serves nothing more as a leader of this term, which the group gives up in any
	// case.
	handingOver bool
	// low is the low-water mark: below every timestamp that this leadership gave, and at or above
	// every one that an earlier one gave or served. What is read at or below it may have been
	// written by another node. lowDue: it is yet to be taken from the clock, which was not believed
	// when the leadership began; until then nothing is read or written for a client.
	low    hlc.Timestamp
	lowDue bool
}

// handedOver is when a leader of a term has handed over, in nanoseconds since 1970 by its clock:
// the entry by which it closes what it has served tells. It may be applied here much later.
type handedOver struct {
	term uint64
	at   int64
}

const (
	// electedTime is what a leader that begins to serve gives the clients of transactions to be
	// heard by it. A client that finds no leader to send a heartbeat to goes on trying, and sends
	// one a second all the while. So one that lives is heard a moment after this leader serves, and
	// there is a second left for one that is slow.
	electedTime = 2 * time.Second
	// handOverTime is the longest time between a leader's last entry and when its successor serves
	// that transactions' clients need not be given time for: they send a heartbeat every second,
	// and count as silent after three, so there is a second left for clocks that differ.
	handOverTime = time.Second
)

// epoch is the present leadership epoch.
func (l *leadership) epoch() Epoch { return Epoch{l.Term, l.number} }

// is says that an epoch is the present one.
func (l *leadership) is(e Epoch) bool { return e == l.epoch() }

// endEpoch begins the next epoch: what is pending is given up.
func (l *leadership) endEpoch() { l.number++ }

// close closes the gate: nothing is served.
func (l *leadership) close() { l.serving, l.barrier, l.barrierDue = false, 0, false }

// change takes in what the group says. The gate is closed.
func (l *leadership) change(to group.Leadership) {
	l.Leadership = to
	l.close()
	l.successor, l.handingOver = 0, false
}

// begin begins a leadership of a term in which this replica has not led before. Its low-water mark
// is yet to be taken.
func (l *leadership) begin(now int64) {
	l.ledTerm = l.Term
	l.livenessFloor = now
	l.low, l.lowDue = hlc.Timestamp{}, true
}

// takeLow takes the low-water mark of a leadership that has served nothing yet. now is the time by
// its clock, which is believed, and ahead how far ahead of it an earlier leader's timestamps can
// be.
//
// Its timestamps start above everything that any earlier leader can have served or written: those
// came from clocks (hlc.Clock.MaxAhead, which counts the timestamps of commits that wait), and were
// taken before this moment, since no earlier leader held its lease any more when this one was
// elected.
//
// The timestamps that it gives itself for the first moments are ahead of all clocks, and so are
// hybrid clocks that have merged them. The next leader, whose clock may be behind this one's, is
// above those too once this election is longer ago than the two clocks are apart; the steps in
// beyond cover what it can see when it is not. A leader that hands over on purpose, which can be at
// once, closes what it has served first (Replica.TransferLeader).
//
// INVARIANT: a clock that is not believed sets nothing that outlives the leadership. A mark from a
// clock that is ahead would go into the log when the leader hands over; its successors would write
// above it, and clients whose servers' clocks are right would not see what was acknowledged.
func (l *leadership) takeLow(now int64, ahead time.Duration) {
	l.low, l.lowDue = hlc.Max(l.low, hlc.Timestamp{Wall: now + int64(ahead)}), false
}

// clockWentForward is for a leader whose clock was wrong, behind, when the leadership began.
func (l *leadership) clockWentForward(now int64, ahead time.Duration) {
	if l.lowDue {
		return // ClockTrusted follows
	}
	// As after an election: what was heard is of the wrong clock.
	l.livenessFloor = now - int64(txn.Abandoned-electedTime)
	l.low = hlc.Max(l.low, hlc.Timestamp{Wall: now + int64(ahead)})
}

// mayServe says that the gate is to be opened: what earlier leaders, or epochs, left in the log is
// applied. When an entry of this leadership's term is, all of its predecessors' are.
func (l *leadership) mayServe(applied *storage.Record) bool {
	switch {
	case l.handingOver:
		return false // what it served now would not be closed
	case l.serving || !l.IsLeader || l.barrier != 0:
		return false
	}
	return applied.Term == l.Term
}

// serve opens the gate. now is the time by this node's clock. It returns true if the log begins
// with this leadership: no earlier one has committed an entry, so none has served anything, and
// nothing is to be above. Otherwise the first writes of a new keyspace would carry timestamps of
// the future. That is so only the first time: after a barrier this same leadership has served.
func (l *leadership) serve(applied *storage.Record, now int64) (first bool) {
	if first = l.firstTerm == l.Term && !l.lowDue; first {
		l.low = hlc.Max(hlc.Timestamp{Wall: now}, applied.Closed)
	}
	l.firstTerm = 0
	l.low = hlc.Max(l.low, beyond(applied.Highest))
	l.serving = true
	// A leader that dies takes along the time of the latest heartbeats, and clients found no leader
	// to send them to, until now. One that hands over has put all that it has heard into the log,
	// and is replaced at once: no client is silent for a second longer because of that.
	l.livenessFloor = now - int64(txn.Abandoned-electedTime)
	h := &l.handedOver
	if h.term != 0 && h.term == applied.CommandTerm && now-h.at < int64(handOverTime) &&
		now-l.widened >= int64(txn.Abandoned) {
		l.livenessFloor = 0
	}
	return first
}

// beyond is above every timestamp of the same wall time: reads and writes of a leader whose hybrid
// clock is ahead of all physical ones differ in the logical counter only.
func beyond(t hlc.Timestamp) hlc.Timestamp {
	if t.IsZero() {
		return t
	}
	return hlc.Timestamp{Wall: t.Wall + 1}
}

// raiseBarrier closes the gate until it is known what became of proposals that were given up in
// this term. sequence is the next proposal's: the log keeps the order of proposals, so when that
// one has come back, the others have come back before it, or never will.
func (l *leadership) raiseBarrier(sequence uint64) {
	l.serving = false
	l.barrier, l.barrierDue = sequence, true
}

// cameBack notes that a proposal of this term is applied.
func (l *leadership) cameBack(sequence uint64) {
	if l.barrier != 0 && sequence >= l.barrier {
		l.barrier = 0
	}
}

// Epoch is a leadership epoch of a replica: the time in which nothing that is pending is given up.
// It ends when the group's leadership changes, and also within a term, when proposals were lost, or
// may have been. What belongs to an epoch, an evaluation or a read, has no effect in another one
// (leadership.is). Epochs are compared with ==.
type Epoch struct {
	term uint64
	// number counts the epochs of a replica since its process opened it.
	number uint64
}

// wire is the epoch as clients carry it from one request to the next.
func (e Epoch) wire(partition keys.PartitionID) *kvpb.Leadership {
	return &kvpb.Leadership{Partition: uint64(partition), Term: e.term, Epoch: e.number}
}

// isWire says that a client names this epoch of a partition.
func (e Epoch) isWire(partition keys.PartitionID, l *kvpb.Leadership) bool {
	return l.Partition == uint64(partition) && e == Epoch{l.Term, l.Epoch}
}

// LeadershipChanged follows the group. What was in flight has an unknown outcome: another leader
// may have it in its log. Called once more by a leader with the same term, it says that proposals
// may have been dropped. It may run beside Apply.
func (r *Replica) LeadershipChanged(to group.Leadership) {
	var end ending
	r.mu.Lock()
	// INVARIANT: before any message leaves that says so: this replica affirms no more that it leads.
	r.mu.closing.Awake()
	l := &r.mu.leadership
	l.change(to)
	r.giveUpLocked(&end, outcomeUnknown)
	r.refuseQueueLocked(&end)
	switch {
	case !l.IsLeader:
		r.mu.cache.Reset(hlc.Timestamp{})
	case l.Term == l.ledTerm:
		r.raiseBarrierLocked()
	default:
		clock := r.node.Clock
		l.begin(clock.Physical())
		r.mu.closing.Begin()
		if r.node.clockTrusted() {
			// A step of the clock that was not looked at yet counts. If it is a jump, ClockWentForward
			// follows.
			l.takeLow(clock.Reached(), clock.MaxAhead())
		}
		r.mu.cache.Reset(l.low)
		r.checkServingLocked()
	}
	due := l.barrierDue
	r.mu.Unlock()
	r.finish(&end)
	if due {
		r.kick(true)
	}
}

// ClockWentForward is for a node whose clock was wrong, behind, and is right from now on; it serves
// nothing until all of its replicas know. A leadership won before took its low-water mark from the
// wrong clock, and an earlier leader, whose clock was right, may have served reads above that. One
// that begins at the same time reads the clock with the lock held: it comes before this, and its
// mark is raised, or finds the right time.
func (r *Replica) ClockWentForward() {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.mu.leadership
	if !l.IsLeader {
		return
	}
	clock := r.node.Clock
	l.clockWentForward(clock.Reached(), clock.MaxAhead())
	r.mu.cache.Raise(l.low)
}

// ClockTrusted is for a node whose clock is believed from now on: what it was elected to lead
// meanwhile takes its low-water mark, and may serve clients.
func (r *Replica) ClockTrusted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lowDueLocked()
}

// lowDueLocked says whether this leadership must not read or write for a client yet. It takes the
// low-water mark if that is due and the clock is believed by now: what hears of that late, or
// never, because it was elected or opened meanwhile, is asked by its first request.
func (r *Replica) lowDueLocked() bool {
	l := &r.mu.leadership
	if !l.lowDue || !l.IsLeader || !r.node.clockTrusted() {
		return l.lowDue
	}
	clock := r.node.Clock
	l.takeLow(clock.Reached(), clock.MaxAhead())
	l.livenessFloor = clock.Physical() - int64(txn.Abandoned-electedTime)
	r.mu.cache.Raise(l.low)
	return false
}

func (n *Node) clockTrusted() bool { return n.ClockTrusted == nil || n.ClockTrusted() }

// checkServingLocked opens the gate when it may be opened.
func (r *Replica) checkServingLocked() {
	l := &r.mu.leadership
	if !l.mayServe(&r.mu.applied) {
		return
	}
	if l.serve(&r.mu.applied, r.node.Clock.Physical()) {
		r.mu.cache.Reset(l.low)
	} else {
		r.mu.cache.Raise(l.low)
	}
	r.holdLocked()
}

package leadership

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// State is what a replica knows of its own leading. The replica's lock guards it.
type State struct {
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
	handedOver HandedOver
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

// HandedOver is when a leader of a term has handed over, in nanoseconds since 1970 by its clock:
// the entry by which it closes what it has served tells. It may be applied here much later.
type HandedOver struct {
	Term uint64
	At   int64
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

// Serving says that the gate is open.
func (l *State) Serving() bool { return l.serving }

// Low is the low-water mark.
func (l *State) Low() hlc.Timestamp { return l.low }

// LowDue says that the low-water mark is yet to be taken.
func (l *State) LowDue() bool { return l.lowDue }

// LivenessFloor is since when transactions' heartbeats have been heard; 0: they always have.
func (l *State) LivenessFloor() int64 { return l.livenessFloor }

// LedBefore says that the replica has led before in the present term.
func (l *State) LedBefore() bool { return l.Term == l.ledTerm }

// FirstEntry notes the term of the log's first entry, when that is applied.
func (l *State) FirstEntry(term uint64) { l.firstTerm = term }

// SetHandedOver notes the latest entry by which a leader has closed what it served.
func (l *State) SetHandedOver(h HandedOver) { l.handedOver = h }

// Epoch is the present leadership epoch.
func (l *State) Epoch() Epoch { return Epoch{l.Term, l.number} }

// Is says that an epoch is the present one.
func (l *State) Is(e Epoch) bool { return e == l.Epoch() }

// EndEpoch begins the next epoch: what is pending is given up.
func (l *State) EndEpoch() { l.number++ }

// Widen notes that the partition has consumed another one, which had written up to a timestamp. It
// returns whether this replica leads.
func (l *State) Widen(now int64, highest hlc.Timestamp) (leads bool) {
	l.widened = now
	if !l.IsLeader {
		return false
	}
	// What is read at or below this may have been written by another node.
	l.low = hlc.Max(l.low, beyond(highest))
	// The heartbeats of transactions whose records are there went to another replica.
	l.livenessFloor = max(l.livenessFloor, now-int64(txn.Abandoned-electedTime))
	return true
}

// Close closes the gate: nothing is served.
func (l *State) Close() { l.serving, l.barrier, l.barrierDue = false, 0, false }

// Change takes in what the group says. The gate is closed.
func (l *State) Change(to group.Leadership) {
	l.Leadership = to
	l.Close()
	l.successor, l.handingOver = 0, false
}

// Begin begins a leadership of a term in which this replica has not led before. Its low-water mark
// is yet to be taken.
func (l *State) Begin(now int64) {
	l.ledTerm = l.Term
	l.livenessFloor = now
	l.low, l.lowDue = hlc.Timestamp{}, true
}

// TakeLow takes the low-water mark of a leadership that has served nothing yet. now is the time by
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
func (l *State) TakeLow(now int64, ahead time.Duration) {
	l.low, l.lowDue = hlc.Max(l.low, hlc.Timestamp{Wall: now + int64(ahead)}), false
}

// ClockWentForward is for a leader whose clock was wrong, behind, when the leadership began.
func (l *State) ClockWentForward(now int64, ahead time.Duration) {
	if l.lowDue {
		return // ClockTrusted follows
	}
	l.hearFrom(now) // what was heard is of the wrong clock
	l.low = hlc.Max(l.low, hlc.Timestamp{Wall: now + int64(ahead)})
}

// TakeLateLow is TakeLow for a leadership whose clock has come to be believed only now.
func (l *State) TakeLateLow(reached int64, ahead time.Duration, now int64) {
	l.TakeLow(reached, ahead)
	l.hearFrom(now)
}

// hearFrom gives the clients of transactions time to be heard, as after an election.
func (l *State) hearFrom(now int64) {
	l.livenessFloor = now - int64(txn.Abandoned-electedTime)
}

// MayServe says that the gate is to be opened: what earlier leaders, or epochs, left in the log is
// applied. When an entry of this leadership's term is, all of its predecessors' are.
func (l *State) MayServe(applied *storage.Record) bool {
	switch {
	case l.handingOver:
		return false // what it served now would not be closed
	case l.serving || !l.IsLeader || l.barrier != 0:
		return false
	}
	return applied.Term == l.Term
}

// Serve opens the gate. now is the time by this node's clock. It returns true if the log begins
// with this leadership: no earlier one has committed an entry, so none has served anything, and
// nothing is to be above. Otherwise the first writes of a new keyspace would carry timestamps of
// the future. That is so only the first time: after a barrier this same leadership has served.
func (l *State) Serve(applied *storage.Record, now int64) (first bool) {
	if first = l.firstTerm == l.Term && !l.lowDue; first {
		l.low = hlc.Max(hlc.Timestamp{Wall: now}, applied.Closed)
	}
	l.firstTerm = 0
	l.low = hlc.Max(l.low, beyond(applied.Highest))
	l.serving = true
	// A leader that dies takes along the time of the latest heartbeats, and clients found no leader
	// to send them to, until now. One that hands over has put all that it has heard into the log,
	// and is replaced at once: no client is silent for a second longer because of that.
	l.hearFrom(now)
	h := &l.handedOver
	if h.Term != 0 && h.Term == applied.CommandTerm && now-h.At < int64(handOverTime) &&
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

// RaiseBarrier closes the gate until it is known what became of proposals that were given up in
// this term. sequence is the next proposal's: the log keeps the order of proposals, so when that
// one has come back, the others have come back before it, or never will.
func (l *State) RaiseBarrier(sequence uint64) {
	l.serving = false
	l.barrier, l.barrierDue = sequence, true
}

// BarrierDue says that the barrier is to be proposed.
func (l *State) BarrierDue() bool { return l.barrierDue }

// TakeBarrier returns the sequence of the barrier, which is about to be proposed, and the replica
// to hand over to behind it, 0 if there is none; or false if no barrier is due.
func (l *State) TakeBarrier() (sequence uint64, successor keys.ReplicaID, due bool) {
	if !l.barrierDue {
		return 0, 0, false
	}
	l.barrierDue, successor, l.successor = false, l.successor, 0
	return l.barrier, successor, true
}

// HandOver has nothing more served in this term, and the leadership handed over once a barrier is
// proposed, which the caller raises.
func (l *State) HandOver(to keys.ReplicaID) { l.successor, l.handingOver = to, true }

// HandingOver says that it serves nothing more as a leader of this term.
func (l *State) HandingOver() bool { return l.handingOver }

// CameBack notes that a proposal of this term is applied.
func (l *State) CameBack(sequence uint64) {
	if l.barrier != 0 && sequence >= l.barrier {
		l.barrier = 0
	}
}

// Epoch is a leadership epoch of a replica: the time in which nothing that is pending is given up.
// It ends when the group's leadership changes, and also within a term, when proposals were lost, or
// may have been. What belongs to an epoch, an evaluation or a read, has no effect in another one
// (leadership.is). Epochs are compared with ==.
type Epoch struct {
	Term uint64
	// number counts the epochs of a replica since its process opened it.
	number uint64
}

// Wire is the epoch as clients carry it from one request to the next.
func (e Epoch) Wire(partition keys.PartitionID) *kvpb.Leadership {
	return &kvpb.Leadership{Partition: uint64(partition), Term: e.Term, Epoch: e.number}
}

// IsWire says that a client names this epoch of a partition.
func (e Epoch) IsWire(partition keys.PartitionID, l *kvpb.Leadership) bool {
	return l.Partition == uint64(partition) && e == Epoch{l.Term, l.Epoch}
}

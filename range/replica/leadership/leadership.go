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

// State is the leadership state of a replica. The replica's lock guards it.
type State struct {
	// Leadership is what the group reported last.
	group.Leadership
	// number is the number of the present epoch.
	number uint64
	// serving is set while this replica leads, and everything that earlier leaders, or earlier
	// epochs, left in the log is applied.
	serving bool
	// firstTerm is the term of the log's first entry; 0 if this process has not seen that entry
	// applied. A partition that has split off has a log of its own, and what was served before is
	// closed.
	firstTerm uint64
	// ledTerm is the latest term in which this replica led.
	ledTerm    uint64
	handedOver HandedOver
	// widened is the time, by this node's clock, at which the partition consumed another one. This
	// replica does not know which heartbeats of transactions the leader of that partition had
	// heard.
	widened int64
	// livenessFloor is the time, by the same clock, since which transactions' heartbeats have been
	// heard; 0: always, by this leader or by leaders that handed over to it. After an election it
	// is earlier than the election by the silence that a client may keep (txn.Abandoned) less
	// electedTime.
	livenessFloor int64
	// barrier is the sequence of the proposal that ends the wait for what an earlier epoch of the
	// same term left in the log; 0 if there is no wait. barrierDue is set while that proposal is
	// yet to be made.
	barrier    uint64
	barrierDue bool
	// successor is the replica to hand over to once the barrier is proposed; 0 if there is none.
	successor keys.ReplicaID
	// handingOver is set when this replica serves nothing more as a leader of this term. The group
	// gives the term up in any case.
	handingOver bool
	// heardAll is set when this replica hands over after it has served for so long that no client's
	// heartbeat of an earlier leadership can matter.
	heardAll bool
	// low is the low-water mark: below every timestamp that this leadership gave, and at or above
	// every timestamp that an earlier leadership gave or served. A version at or below it may be
	// another node's. lowDue is set while the mark is yet to be taken from the clock, which was not
	// believed when the leadership began; until then no client is served.
	low    hlc.Timestamp
	lowDue bool
}

// HandedOver is the time at which a leader of a term handed over, in nanoseconds since 1970 by its
// clock, as told by the entry that closes what it has served. That entry may be applied here much
// later.
type HandedOver struct {
	Term uint64
	At   int64
}

const (
	// electedTime is how long a leader that begins to serve waits for the heartbeats of
	// transactions' clients. A client that finds no leader to send a heartbeat to sends a new one
	// each second, so a live client is heard a moment after this leader serves, with a second left
	// for a slow one.
	electedTime = 2 * time.Second
	// handOverTime is the longest time between a leader's last entry and the moment when its
	// successor serves for which transactions' clients need no extra time: they send a heartbeat
	// every second and count as silent after three, so a second is left for clocks that differ.
	handOverTime = time.Second
)

// Serving reports that the gate is open.
func (l *State) Serving() bool { return l.serving }

// Low returns the low-water mark.
func (l *State) Low() hlc.Timestamp { return l.low }

// LowDue reports that the low-water mark is yet to be taken.
func (l *State) LowDue() bool { return l.lowDue }

// LivenessFloor returns the time since which transactions' heartbeats have been heard; 0: always.
func (l *State) LivenessFloor() int64 { return l.livenessFloor }

// LedBefore reports that the replica has led before in the present term.
func (l *State) LedBefore() bool { return l.Term == l.ledTerm }

// FirstEntry notes the term of the log's first entry when the entry is applied.
func (l *State) FirstEntry(term uint64) { l.firstTerm = term }

// SetHandedOver notes the latest entry by which a leader has closed what it served.
func (l *State) SetHandedOver(h HandedOver) { l.handedOver = h }

// Epoch returns the present leadership epoch.
func (l *State) Epoch() Epoch { return Epoch{l.Term, l.number} }

// Is reports that an epoch is the present one.
func (l *State) Is(e Epoch) bool { return e == l.Epoch() }

// EndEpoch begins the next epoch: the caller gives up what is pending.
func (l *State) EndEpoch() { l.number++ }

// Widen notes that the partition has consumed another one, whose versions go up to the timestamp
// highest. It returns whether this replica leads.
func (l *State) Widen(now int64, highest hlc.Timestamp) (leads bool) {
	l.widened = now
	if !l.IsLeader {
		return false
	}
	// A version at or below this may be another node's.
	l.low = hlc.Max(l.low, beyond(highest))
	// The heartbeats of transactions whose records lie there went to another replica.
	l.livenessFloor = max(l.livenessFloor, now-int64(txn.Abandoned-electedTime))
	return true
}

// Close closes the gate: nothing is served from now on.
func (l *State) Close() { l.serving, l.barrier, l.barrierDue = false, 0, false }

// Change takes what the group reports, and closes the gate.
func (l *State) Change(to group.Leadership) {
	l.Leadership = to
	l.Close()
	l.successor, l.handingOver = 0, false
}

// Begin begins the leadership of a term in which this replica has not led before. The low-water
// mark is yet to be taken.
func (l *State) Begin(now int64) {
	l.ledTerm = l.Term
	l.livenessFloor = now
	l.low, l.lowDue = hlc.Timestamp{}, true
}

// TakeLow takes the low-water mark of a leadership that has served nothing yet. now is the time by
// its clock, which is believed; ahead is how far an earlier leader's timestamps can be ahead of
// now.
//
// The timestamps of this leadership start above everything that an earlier leader can have served
// or written: those timestamps came from clocks (hlc.Clock.MaxAhead, which counts the timestamps of
// commits that wait), and were taken before this moment, since no earlier leader held its lease any
// more when this one was elected.
//
// At first the timestamps that this leader gives are ahead of all clocks, and so are hybrid clocks
// that have merged them. The clock of the next leader may be behind this leader's. Once this
// election is longer ago than the two clocks differ, the next leader is above those timestamps all
// the same; before that, the steps in beyond bring it above those that it can see. A leader that
// hands over on purpose, which can be at once, closes what it has served first
// (Evaluator.TransferLeader).
//
// INVARIANT: a clock that is not believed sets nothing that outlives the leadership. A mark from a
// clock that is ahead would go into the log when the leader hands over; its successors would write
// above it, and clients whose servers' clocks are right would not see what was acknowledged.
func (l *State) TakeLow(now int64, ahead time.Duration) {
	l.low, l.lowDue = hlc.Max(l.low, hlc.Timestamp{Wall: now + int64(ahead)}), false
}

// ClockWentForward raises the mark of a leadership that began while the node's clock was behind.
func (l *State) ClockWentForward(now int64, ahead time.Duration) {
	if l.lowDue {
		return // ClockTrusted follows
	}
	l.hearFrom(now) // what was heard is by the wrong clock
	l.low = hlc.Max(l.low, hlc.Timestamp{Wall: now + int64(ahead)})
}

// TakeLateLow is TakeLow for a leadership that began before its clock was believed.
func (l *State) TakeLateLow(reached int64, ahead time.Duration, now int64) {
	l.TakeLow(reached, ahead)
	l.hearFrom(now)
}

// hearFrom gives the clients of transactions time to be heard, as after an election.
func (l *State) hearFrom(now int64) {
	l.livenessFloor = now - int64(txn.Abandoned-electedTime)
}

// MayServe reports that the conditions for serving are met: what earlier leaders, or epochs, left
// in the log is applied. An applied entry of this leadership's term proves it for earlier terms.
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
// with this leadership: no earlier leader has committed an entry or served anything, so timestamps
// need not start above the mark, and the first writes of a new keyspace carry no timestamps of the
// future. It is true only the first time: after a barrier this same leadership has served.
func (l *State) Serve(applied *storage.Record, now int64) (first bool) {
	if first = l.firstTerm == l.Term && !l.lowDue; first {
		l.low = hlc.Max(hlc.Timestamp{Wall: now}, applied.Closed)
	}
	l.firstTerm = 0
	l.low = hlc.Max(l.low, beyond(applied.Highest))
	l.serving = true
	// A leader that dies takes along the time of the latest heartbeats, and clients found no leader
	// to send heartbeats to until now. A leader that hands over has put all that it has heard into
	// the log, and is replaced at once: that silences no client for longer than a second. It says so
	// only if it has itself heard all that matters (HeardAll).
	l.hearFrom(now)
	h := &l.handedOver
	if h.Term != 0 && h.Term == applied.CommandTerm && now-h.At < int64(handOverTime) &&
		now-l.widened >= int64(txn.Abandoned) {
		l.livenessFloor = 0
	}
	return first
}

// beyond returns a timestamp above every timestamp with the wall time of t: the reads and writes of
// a leader whose hybrid clock is ahead of all physical clocks differ in the logical counter only.
func beyond(t hlc.Timestamp) hlc.Timestamp {
	if t.IsZero() {
		return t
	}
	return hlc.Timestamp{Wall: t.Wall + 1}
}

// RaiseBarrier closes the gate until the fate of proposals that were given up in this term is
// known. sequence is that of the next proposal. The log keeps the order of proposals: when the next
// one has come back, the others have come back before it or never will.
func (l *State) RaiseBarrier(sequence uint64) {
	l.serving = false
	l.barrier, l.barrierDue = sequence, true
}

// BarrierDue reports that the barrier is to be proposed.
func (l *State) BarrierDue() bool { return l.barrierDue }

// TakeBarrier returns the sequence of the barrier, which is about to be proposed, and the replica
// to hand over to after it, 0 if there is none. due is false if there is no barrier to propose.
func (l *State) TakeBarrier() (sequence uint64, successor keys.ReplicaID, due bool) {
	if !l.barrierDue {
		return 0, 0, false
	}
	l.barrierDue, successor, l.successor = false, l.successor, 0
	return l.barrier, successor, true
}

// HandOver stops serving for the rest of the term. The leadership goes to another replica once a
// barrier is proposed; the caller raises that barrier. now is the time by this node's clock.
func (l *State) HandOver(to keys.ReplicaID, now int64) {
	l.heardAll = l.serving && now-l.livenessFloor >= int64(txn.Abandoned)
	l.successor, l.handingOver = to, true
}

// HeardAll reports that this replica hands over and has heard each heartbeat that can matter: its
// successor needs no time to hear clients. A leader that was elected a moment ago has not. Clients
// may have sent heartbeats to the leader before, which has died with them.
func (l *State) HeardAll() bool { return l.heardAll }

// HandingOver reports that this replica serves nothing more as a leader of this term.
func (l *State) HandingOver() bool { return l.handingOver }

// CameBack notes that a proposal of this term is applied.
func (l *State) CameBack(sequence uint64) {
	if l.barrier != 0 && sequence >= l.barrier {
		l.barrier = 0
	}
}

// Epoch is a leadership epoch of a replica: a time in which no proposal is given up. It ends when
// the group's leadership changes, and also within a term when proposals were lost, or may have
// been. What belongs to an epoch, such as an evaluation or a read, has no effect in another epoch
// (State.Is). Epochs are compared with ==.
type Epoch struct {
	Term uint64
	// number counts the epochs of a replica since its process opened it.
	number uint64
}

// Wire returns the epoch in the form that clients carry from one request to the next.
func (e Epoch) Wire(partition keys.PartitionID) *kvpb.Leadership {
	return &kvpb.Leadership{Partition: uint64(partition), Term: e.Term, Epoch: e.number}
}

// IsWire reports that a client names this epoch of a partition.
func (e Epoch) IsWire(partition keys.PartitionID, l *kvpb.Leadership) bool {
	return l.Partition == uint64(partition) && e == Epoch{l.Term, l.Epoch}
}

package concurrency

import (
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// A push asks the coordinator of a transaction in the way: for a write, whether the transaction can
// be aborted; for a read, whether it can be kept above the read's timestamp. For each transaction
// one push of each kind is on its way, however many requests wait, and however many of its locks
// they met. For writes the question is repeated while they wait; a read gets the answer and looks
// again.
//
// An answer that comes after the end of the leadership epoch is ignored.

// pushInterval is how often the coordinator is asked while writes wait; a random time of up to a
// quarter is added.
const pushInterval = 250 * time.Millisecond

// Push is a push to be sent.
type Push struct {
	Request *kvpb.PushRequest
	queue   *waitQueue
	push    *push
	mark    uint64
}

// Work holds what the owner does when it has released its lock.
type Work struct {
	// Reads must look again.
	Reads []*Read
	// ExpiredReads and ExpiredWrites are answered that their time is up. (Conflict says for what
	// they waited.)
	ExpiredReads  []*Read
	ExpiredWrites []*Waiter
	// Pushes are sent, and their answers passed to Manager.Answered.
	Pushes []Push
	// Resolve lists transactions whose outcome is known: call Resolutions.Start.
	Resolve []*Transaction
}

// Pushes holds the transactions for which a request waits, or did until a moment ago, and the
// questions to their coordinators.
type Pushes struct {
	config    *Config
	partition keys.PartitionID
	keyspace  uint32
	writes    *Writes
	queues    map[*Transaction]*waitQueue
	// sent is the number of the last push sent.
	sent uint64
}

// queue returns the wait queue of a transaction, and makes it if need be.
func (ps *Pushes) queue(x *Transaction, now time.Time) *waitQueue {
	q := ps.queues[x]
	if q == nil {
		if ps.queues == nil {
			ps.queues = make(map[*Transaction]*waitQueue)
		}
		q = &waitQueue{of: x, since: now}
		ps.queues[x] = q
	}
	return q
}

// Hurried reports whether a request waits for a transaction's locks for which the resolution must
// not pause.
func (ps *Pushes) Hurried(of *Transaction) (hurried bool) {
	if q := ps.queues[of]; q != nil && len(q.reads)+len(q.asked) > 0 {
		return true
	}
	of.EachWaiter(func(_ string, w *Waiter) { hurried = hurried || w.hurries() })
	return hurried
}

// ask sends the pushes of a transaction that are due. It returns when another push is due, later
// than now; zero: no push is due before something else happens. A push for which no request waits
// is never due, however long ago the last was sent.
func (ps *Pushes) ask(q *waitQueue, now time.Time, work *Work) (again time.Time) {
	if !ps.config.Pushes {
		return again
	}
	if !q.timestamp.inFlight && len(q.reads) > 0 && !now.Before(q.timestamp.due) {
		ps.askForReads(q, work)
	}
	if !q.timestamp.inFlight && len(q.reads) > 0 {
		again = q.timestamp.due
	}
	if q.abort.inFlight || q.of.Waiting() == 0 {
		return again
	}
	return earliest(again, ps.askForWrites(q, now, work))
}

// askForReads pushes the transaction above all reads that wait for it.
func (ps *Pushes) askForReads(q *waitQueue, work *Work) {
	q.asked, q.reads = q.reads, nil
	above := hlc.Timestamp{}
	var oldest *Read
	for _, l := range q.asked {
		above = hlc.Max(above, l.read.Timestamp)
		if oldest == nil || l.read.age().olderThan(oldest.age()) {
			oldest = l.read
		}
	}
	q.timestamp.above = above
	ps.send(q, &q.timestamp,
		&kvpb.PushRequest{Kind: kvpb.PushRequest_TIMESTAMP, Above: wire.ToTimestamp(above)},
		oldest.age(), work)
}

// askForWrites asks the coordinator whether the transaction can be aborted for the oldest write
// that waits. If it is not due yet, it returns when it will be.
func (ps *Pushes) askForWrites(q *waitQueue, now time.Time, work *Work) (again time.Time) {
	oldest, wanted, awaited := q.oldestWaiter(func(*Waiter) bool { return true })
	if oldest == nil {
		return again
	}
	pusher := oldest.age()
	if now.Before(q.abort.due) && !pusher.olderThan(q.abort.pusher) {
		return q.abort.due
	}
	if patience := q.since.Add(ps.config.PushDelay); now.Before(patience) {
		// Most locks are released sooner than an answer would come, because their transactions are
		// nearly done.
		return patience
	}
	if ps.writes.disconnected(oldest) {
		// Nothing is aborted for this write. But if nothing else waits, the push still finds out
		// whether the transaction's client is alive.
		pusher = age{}
		connected := func(w *Waiter) bool { return !ps.writes.disconnected(w) }
		if other, key, _ := q.oldestWaiter(connected); other != nil {
			pusher, wanted = other.age(), key
		}
	}
	request := &kvpb.PushRequest{Kind: kvpb.PushRequest_ABORT, Awaited: awaited}
	if pusher.id.IsZero() {
		request.Kind = kvpb.PushRequest_STATUS
	} else if len(wanted) <= txn.MaxWantedKey {
		request.WantedKey, request.WantedKeyspace = []byte(wanted), ps.keyspace
	}
	q.abort.due = now.Add(pushInterval + time.Duration(ps.config.Random()%uint64(pushInterval/4)))
	ps.send(q, &q.abort, request, pusher, work)
	// A write that is older than all that waited before makes a push due at once.
	q.abort.pusher = oldest.age()
	return again
}

// send adds a push to the work.
func (ps *Pushes) send(q *waitQueue, p *push, request *kvpb.PushRequest, pusher age, work *Work) {
	p.inFlight, p.pusher = true, pusher
	ps.sent++
	request.Pushee = q.of.Proto()
	request.Seen = wire.ToTimestamp(hlc.Timestamp{Wall: q.of.Acquired})
	request.LockedKeyspace = ps.keyspace
	if !pusher.begun.IsZero() {
		request.PusherBegun, request.Pusher = wire.ToTimestamp(pusher.begun), pusher.id.Bytes()
	}
	ps.config.Metrics.pushes[request.Kind].Inc()
	work.Pushes = append(work.Pushes, Push{request, q, p, ps.sent})
}

// orphan notes that a transaction's coordinator does not answer. If the coordinator is gone because
// its keyspace was dropped, nothing can be decided any more. The node that destroys the coordinator
// reports earlier commits (replica.Settle), and their locks turn into versions. After the time that
// this takes, the transaction counts as aborted: its locks are useless, and block others.
func (ps *Pushes) orphan(x *Transaction, err error, now time.Time) {
	k := &x.Known
	switch {
	case k.State != kvpb.TransactionState_PENDING || !errors.Is(err, txn.ErrCoordinatorGone):
	case k.Gone.IsZero():
		k.Gone = now
	case now.Sub(k.Gone) >= txn.Orphaned:
		k.State = kvpb.TransactionState_ABORTED
		ps.config.Metrics.orphans.Inc()
		ps.config.Logger.Warn("the locks of a transaction are removed: "+
			"the keyspace that held its outcome was dropped",
			"partition", ps.partition, "transaction", x.ID, "keyspace", x.Keyspace)
	}
}

// Learn notes what a coordinator says of a transaction. If it says that the transaction is pending,
// this was true when the push with the number mark was sent, or later.
func (ps *Pushes) Learn(x *Transaction, s *kvpb.TransactionStatus, mark uint64) {
	k, ts := &x.Known, wire.FromTimestamp(s.GetTimestamp())
	if k.State != kvpb.TransactionState_PENDING {
		return
	}
	switch s.GetState() {
	case kvpb.TransactionState_COMMITTED:
		if ts.IsZero() {
			return // contradicts an earlier decision
		}
		k.State, k.Commit = kvpb.TransactionState_COMMITTED, ts
		ps.config.Metrics.pushesCommitted.Inc()
	case kvpb.TransactionState_ABORTED:
		k.State, k.Reason = kvpb.TransactionState_ABORTED, s.GetReason()
		k.Wounder, k.Wanted = txn.WoundOf(s)
		k.Limit = txn.LimitOf(s)
		ps.config.Metrics.pushesAborted.Inc()
	case kvpb.TransactionState_PENDING:
		k.Above = hlc.Max(k.Above, ts)
		k.Mark = max(k.Mark, mark)
	}
}

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

// A push asks the coordinator of a transaction that is in the way: for a write whether the
// transaction can be aborted, for a read whether it can be kept above the read's timestamp. One of
// each kind is on its way for each transaction, however many wait, and however many of its locks
// they met. For writes the coordinator is asked again and again while they wait; a read is told the
// answer and looks again.
//
// An answer that comes when the leadership epoch is over is of no interest.

// pushInterval is how often the coordinator is asked while writes wait; up to a quarter more is
// added at random.
const pushInterval = 250 * time.Millisecond

// Push is a push to be sent.
type Push struct {
	Request *kvpb.PushRequest
	queue   *waitQueue
	push    *push
	mark    uint64
}

// Work is what is to be done when the owner's lock is released.
type Work struct {
	// Reads look again.
	Reads []*Read
	// ExpiredReads and ExpiredWrites are answered: their time is up. (Conflict says over what.)
	ExpiredReads  []*Read
	ExpiredWrites []*Waiter
	// Pushes are to be sent, and their answers brought back (Manager.Answered).
	Pushes []Push
	// Resolve are transactions whose outcome is known: Resolutions.Start is to be called.
	Resolve []*Transaction
}

// Pushes are the transactions that anything waits for, or did until a moment ago, and what their
// coordinators are asked.
type Pushes struct {
	config    *Config
	partition keys.PartitionID
	keyspace  uint32
	writes    *Writes
	queues    map[*Transaction]*waitQueue
	// sent numbers the pushes that were sent.
	sent uint64
}

// queue is the wait queue of a transaction; there is one from here on.
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

// Hurried says whether anything waits for a transaction's locks for which there is to be no pause.
func (ps *Pushes) Hurried(of *Transaction) (hurried bool) {
	if q := ps.queues[of]; q != nil && len(q.reads)+len(q.asked) > 0 {
		return true
	}
	of.EachWaiter(func(_ string, w *Waiter) { hurried = hurried || w.hurries() })
	return hurried
}

// ask sends the pushes of a transaction that are due. It returns when there is more to ask, which
// is later than now; zero: not before something else happens. A push that nothing waits for is
// never due, however long ago it was sent.
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

// askForReads has the transaction pushed above all reads that wait for it.
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

// askForWrites has the coordinator asked whether the transaction can be aborted for the oldest of
// those that wait to write. It returns when to do so, if it is later.
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
		// Most locks last no longer than it would take to ask, and their transactions are nearly
		// done.
		return patience
	}
	if ps.writes.disconnected(oldest) {
		// Nothing is aborted for it. But if nothing else waits, it is to be found out all the same
		// whether the client of the transaction is there.
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
	// A write that is older than all that wait now has the coordinator asked again at once.
	q.abort.pusher = oldest.age()
	return again
}

// send has a push sent.
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

// orphan notes that a transaction's coordinator does not answer. If it is gone, because its
// keyspace was dropped, nothing is left to decide. What was committed before is told by the node
// that destroys the coordinator (replica.Settle), in which case the locks turn into versions; when
// that has had the time, the transaction is taken for aborted: its locks are of nothing, and in the
// way of all.
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

// Learn notes what is known of a transaction. A coordinator that says that it is pending says that
// of the moment when the push with the number mark was sent, or later.
func (ps *Pushes) Learn(x *Transaction, s *kvpb.TransactionStatus, mark uint64) {
	k, ts := &x.Known, wire.FromTimestamp(s.GetTimestamp())
	if k.State != kvpb.TransactionState_PENDING {
		return
	}
	switch s.GetState() {
	case kvpb.TransactionState_COMMITTED:
		if ts.IsZero() {
			return // it cannot be
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

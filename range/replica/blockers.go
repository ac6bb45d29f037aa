package replica

import (
	"errors"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/locks"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Whoever waits for a transaction has its coordinator asked: a write whether it can be aborted, a read whether it can be kept above
// the read's timestamp. There is one question of each kind on its way for each transaction, however many wait, and however
// many of its locks they met. Writes ask again while they wait; a read is told the answer and looks anew.
//
// All of this belongs to the reign: when it ends, those who wait are refused and answers that come later are of no interest.

// pushInterval is how often writes that wait ask again; up to a quarter more is added at random.
const pushInterval = 250 * time.Millisecond

// waits is what waits for transactions. It is guarded by the replica's lock.
type waits struct {
	blockers map[txn.ID]*blocker
	// reads are those that wait.
	reads map[*lockedRead]struct{}
	// order numbers writes that were parked, and bytes is how large those are that still are.
	order uint64
	bytes int
	// attempts are those that have waited and are not finished (attempts.go), by request.
	attempts map[mvcc.RequestID]*transactional
	// pushes numbers the pushes that were sent.
	pushes uint64
	// clearings are of the transactions whose locks are being ended because their outcome is known.
	clearings map[txn.ID]*clearing
	// wanted are transactions of this partition's for whose locks somebody waits, or did, somewhere.
	wanted map[txn.ID]struct{}
	// held are transactions of this partition's whose timestamps are held, and until when.
	held map[txn.ID]time.Time
	// timer runs at the time `at`, if that is not zero.
	timer *time.Timer
	at    time.Time
}

// blocker is a transaction that somebody waits for, or did until a moment ago.
type blocker struct {
	of *locks.Transaction[*parked]
	// since is when somebody began to wait for it.
	since time.Time
	// reads wait for the next question to be answered, asked for the one on its way.
	reads, asked []*lockedRead
	// read and write are the questions of either kind.
	read, write lane
}

// lane is one kind of question.
type lane struct {
	inFlight bool
	// due is when to ask again.
	due time.Time
	// begun and pusher say for whom was asked last.
	begun  hlc.Timestamp
	pusher txn.ID
	// above is what was asked for last.
	above hlc.Timestamp
}

// lockedRead is a read that waits for transactions.
type lockedRead struct {
	rd *read
	// left is how many of them.
	left int
	// over: it was answered.
	over     bool
	conflict *kvpb.Conflict
	since    time.Time
}

// lockWork is what is to be done about locks when the replica's lock is released.
type lockWork struct {
	reads         []*read
	expiredReads  []*lockedRead
	expiredWrites []*parked
	pushes        []outgoingPush
	resolve       []txn.ID
}

type outgoingPush struct {
	request *kvpb.PushRequest
	done    func(*kvpb.TransactionStatus, error)
}

// run does it.
func (w *lockWork) run(r *Replica) {
	for _, rd := range w.reads {
		r.resumeLockedRead(rd)
	}
	for _, l := range w.expiredReads {
		r.endRead(l.rd, r.lockedError(l.rd.pending.Request, l.conflict))
	}
	for _, p := range w.expiredWrites {
		r.reply(p.pending, p.command, r.lockedError(p.pending.Request, p.x.conflict))
	}
	for _, id := range w.resolve {
		r.resolveDecided(id)
	}
	for _, p := range w.pushes {
		r.node.Metrics.pushes[p.request.Kind].Inc()
		r.node.Pusher.Push(p.request, p.done)
	}
	*w = lockWork{}
}

// lockNow is the time by which those who wait are measured.
func (r *Replica) lockNow() time.Time {
	if now := r.node.hooks.lockTime; now != nil {
		return now()
	}
	return time.Now()
}

// wakeLocked is tendLocked, if there is anything to tend.
func (r *Replica) wakeLocked() (todo lockWork) {
	if len(r.mu.waits.blockers) > 0 || r.mu.locks.Waiters() > 0 {
		r.tendLocked(&todo)
	}
	return todo
}

// tendLocked brings what waits up to date: who waits for nothing any more goes on, whose time is up is answered, what has to be
// asked is asked, what was decided is resolved.
func (r *Replica) tendLocked(todo *lockWork) {
	w := &r.mu.waits
	now := r.lockNow()
	r.expireLocked(now, todo)
	for id, b := range w.blockers {
		if r.mu.locks.Transaction(id) != b.of {
			b.releaseLocked(r, todo, &b.asked)
			b.releaseLocked(r, todo, &b.reads)
			delete(w.blockers, id)
		} else if b.idle() && !now.Before(b.read.due) {
			delete(w.blockers, id) // not before: a read that looks anew does not ask at once
		}
	}
	r.mu.locks.EachBlocking(func(x *locks.Transaction[*parked]) { r.blockerLocked(x, now) })
	next := r.deadlineLocked()
	for id, b := range w.blockers {
		if b.of.Known.State != kvpb.TransactionState_PENDING {
			todo.resolve = append(todo.resolve, id)
			if again := now.Add(pushInterval); next.IsZero() || again.Before(next) {
				next = again
			}
			continue
		}
		if again := b.askLocked(r, now, todo); !again.IsZero() && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	r.armLocked(now, next)
}

// idle: nobody waits, and nothing is asked.
func (b *blocker) idle() bool {
	return len(b.reads)+len(b.asked)+b.of.Waiting() == 0 && !b.read.inFlight && !b.write.inFlight
}

// blockerLocked is the blocker of a transaction; there is one from here on.
func (r *Replica) blockerLocked(x *locks.Transaction[*parked], now time.Time) *blocker {
	w := &r.mu.waits
	b := w.blockers[x.ID]
	if b == nil {
		if w.blockers == nil {
			w.blockers = make(map[txn.ID]*blocker)
		}
		b = &blocker{of: x, since: now}
		w.blockers[x.ID] = b
	}
	return b
}

// releaseLocked lets reads go on.
func (b *blocker) releaseLocked(r *Replica, todo *lockWork, reads *[]*lockedRead) {
	committed := b.of.Known.State == kvpb.TransactionState_COMMITTED
	for _, l := range *reads {
		if l.over {
			continue
		}
		if committed {
			l.rd.committed = hlc.Max(l.rd.committed, b.of.Known.Commit)
		}
		if l.left--; l.left == 0 {
			r.leaveLocked(l)
			todo.reads = append(todo.reads, l.rd)
		}
	}
	*reads = nil
}

// leaveLocked takes a read out of those that wait.
func (r *Replica) leaveLocked(l *lockedRead) {
	l.over = true
	delete(r.mu.waits.reads, l)
	r.mu.waitingReads--
	r.node.Metrics.lockWaits.Observe(since(l.since))
}

// askLocked asks what has to be asked. It returns when there is more to ask, which is later than now; zero: not before something else
// happens. A question that nobody waits for is never due, however long ago it was asked.
func (b *blocker) askLocked(r *Replica, now time.Time, todo *lockWork) (again time.Time) {
	if r.node.Pusher == nil {
		return again
	}
	if !b.read.inFlight && len(b.reads) > 0 && !now.Before(b.read.due) {
		b.asked, b.reads = b.reads, nil
		above := hlc.Timestamp{}
		var oldest *read
		for _, l := range b.asked {
			above = hlc.Max(above, l.rd.timestamp)
			if rd := l.rd; oldest == nil || txn.Older(rd.begun, rd.own, oldest.begun, oldest.own) {
				oldest = rd
			}
		}
		b.read.above = above
		q := &kvpb.PushRequest{Kind: kvpb.PushRequest_TIMESTAMP, Above: rpc.ToTimestamp(above)}
		b.sendLocked(r, &b.read, q, oldest.begun, oldest.own, todo)
	}
	if !b.read.inFlight && len(b.reads) > 0 {
		again = b.read.due
	}
	if b.write.inFlight || b.of.Waiting() == 0 {
		return again
	}
	oldest, wanted, awaited := b.oldestWriter(func(*parked) bool { return true })
	if oldest == nil {
		return again
	}
	of := oldest.transaction()
	if now.Before(b.write.due) && !txn.Older(of.Begun, of.ID, b.write.begun, b.write.pusher) {
		if again.IsZero() || b.write.due.Before(again) {
			again = b.write.due
		}
		return again
	}
	if patience := b.since.Add(r.node.PushDelay); now.Before(patience) {
		// Most locks last no longer than it would take to ask, and who holds one is nearly done.
		if again.IsZero() || patience.Before(again) {
			again = patience
		}
		return again
	}
	if r.pointless(&oldest.write) {
		// Nobody is aborted for it. But if there is nobody else, it is to be found out all the same whether who holds the lock is there.
		of = txn.Info{}
		if living, key, _ := b.oldestWriter(func(p *parked) bool { return !r.pointless(&p.write) }); living != nil {
			of, wanted = living.transaction(), key
		}
	}
	q := &kvpb.PushRequest{Kind: kvpb.PushRequest_ABORT, Awaited: awaited}
	if of.ID.IsZero() {
		q.Kind = kvpb.PushRequest_STATUS
	} else if len(wanted) <= txn.MaxWantedKey {
		q.WantedKey, q.WantedKeyspace = []byte(wanted), r.Descriptor().GetKeyspace()
	}
	b.write.due = now.Add(pushInterval + time.Duration(r.node.Random()%uint64(pushInterval/4)))
	b.sendLocked(r, &b.write, q, of.Begun, of.ID, todo)
	// Whoever is older than all that wait now has it asked again at once.
	b.write.begun, b.write.pusher = oldest.transaction().Begun, oldest.transaction().ID
	return again
}

// oldestWriter is whose request is the oldest of those that wait to write and of whom counts says so, and the key that it waits for. awaited
// says whether anybody's presses.
func (b *blocker) oldestWriter(counts func(*parked) bool) (oldest *parked, wanted string, awaited bool) {
	b.of.EachWaiter(func(key string, p *parked) {
		if p.until != locks.UntilGone || !counts(p) {
			return // what is its own transaction's waits for an entry
		}
		awaited = awaited || p.presses()
		if of := p.transaction(); oldest == nil || txn.Older(of.Begun, of.ID, oldest.transaction().Begun, oldest.transaction().ID) {
			oldest, wanted = p, key
			if c := p.x.conflict; c != nil {
				wanted = text(c.Key) // of a span lock that it waits for, it wants only this
			}
		}
	})
	return oldest, wanted, awaited
}

// sendLocked has a question sent.
func (b *blocker) sendLocked(r *Replica, l *lane, q *kvpb.PushRequest, begun hlc.Timestamp, pusher txn.ID, todo *lockWork) {
	l.inFlight, l.begun, l.pusher = true, begun, pusher
	r.mu.waits.pushes++
	mark := r.mu.waits.pushes
	q.Pushee = b.of.Proto()
	q.Seen = rpc.ToTimestamp(hlc.Timestamp{Wall: b.of.Laid})
	q.LockedKeyspace = r.Descriptor().GetKeyspace()
	if !begun.IsZero() {
		q.PusherBegun, q.Pusher = rpc.ToTimestamp(begun), pusher.Bytes()
	}
	todo.pushes = append(todo.pushes, outgoingPush{q, func(s *kvpb.TransactionStatus, err error) { r.pushed(b, l, mark, s, err) }})
}

// pushed takes an answer.
func (r *Replica) pushed(b *blocker, l *lane, mark uint64, s *kvpb.TransactionStatus, err error) {
	var todo lockWork
	r.mu.Lock()
	if r.mu.waits.blockers[b.of.ID] != b {
		r.mu.Unlock()
		return
	}
	l.inFlight = false
	if err == nil {
		r.learnLocked(b.of, s, mark)
		if b.of.Known.State == kvpb.TransactionState_PENDING && b.of.Known.Above.Less(b.read.above) && l == &b.read {
			l.due = r.lockNow().Add(pushInterval) // it was not done, whyever: not again at once
		}
		if l == &b.read {
			// Those that came since look too: for a given timestamp the answer may be enough.
			b.releaseLocked(r, &todo, &b.asked)
			b.releaseLocked(r, &todo, &b.reads)
		}
	} else {
		r.node.Metrics.pushesFailed.Inc()
		r.orphanLocked(b.of, err)
		r.node.Logger.Debug("a transaction's coordinator did not answer", "partition", r.id, "transaction", b.of.ID, "error", err)
		if l == &b.read {
			b.reads = append(b.asked, b.reads...)
			b.asked, l.due = nil, r.lockNow().Add(pushInterval)
		}
	}
	if b.of.Known.State != kvpb.TransactionState_PENDING && b.idle() {
		todo.resolve = append(todo.resolve, b.of.ID)
	}
	r.tendLocked(&todo)
	r.mu.Unlock()
	todo.run(r)
}

// orphanLocked notes that a transaction's coordinator does not answer. If it is gone, because its keyspace was dropped, there is nobody left to
// decide. What was committed before is told by those who destroy the coordinator (see Settle), in which case the locks turn into
// versions; when they have had the time for that, the transaction is taken for aborted: locks of nobody are in everybody's way.
func (r *Replica) orphanLocked(x *locks.Transaction[*parked], err error) {
	k := &x.Known
	switch now := r.lockNow(); {
	case k.State != kvpb.TransactionState_PENDING || !errors.Is(err, txn.ErrCoordinatorGone):
	case k.Gone.IsZero():
		k.Gone = now
	case now.Sub(k.Gone) >= txn.Orphaned:
		k.State = kvpb.TransactionState_ABORTED
		r.node.Metrics.orphans.Inc()
		r.node.Logger.Warn("the locks of a transaction are removed: the keyspace that held its outcome was dropped",
			"partition", r.id, "transaction", x.ID, "keyspace", x.Keyspace)
	}
}

// learnLocked notes what is known of a transaction. Whoever says that it is pending says that of the moment when the push with the
// number mark was sent, or later.
func (r *Replica) learnLocked(x *locks.Transaction[*parked], s *kvpb.TransactionStatus, mark uint64) {
	k, ts := &x.Known, rpc.FromTimestamp(s.GetTimestamp())
	if k.State != kvpb.TransactionState_PENDING {
		return
	}
	switch s.GetState() {
	case kvpb.TransactionState_COMMITTED:
		if ts.IsZero() {
			return // it cannot be
		}
		k.State, k.Commit = kvpb.TransactionState_COMMITTED, ts
		r.node.Metrics.pushesCommitted.Inc()
	case kvpb.TransactionState_ABORTED:
		k.State, k.Reason = kvpb.TransactionState_ABORTED, s.GetReason()
		k.Wounder, k.Wanted = txn.WoundOf(s)
		k.Limit = txn.LimitOf(s)
		r.node.Metrics.pushesAborted.Inc()
	case kvpb.TransactionState_PENDING:
		k.Above = hlc.Max(k.Above, ts)
		k.Mark = max(k.Mark, mark)
	}
}

// deadline is when a request's caller stops waiting; zero: never.
func deadline(p *Pending) time.Time {
	t := p.Request.GetTimeoutMicros()
	if t == 0 || t >= uint64(1<<62)/1000 {
		return time.Time{}
	}
	return p.Arrived.Add(time.Duration(t) * time.Microsecond)
}

// expireLocked takes out whose time is up.
func (r *Replica) expireLocked(now time.Time, todo *lockWork) {
	over := func(p *Pending) bool {
		at := deadline(p)
		return !at.IsZero() && !now.Before(at)
	}
	if r.mu.locks.Waiters() > 0 {
		expired := r.mu.locks.TakeWaiters(func(p *parked) bool { return over(&p.pending) })
		for _, p := range expired {
			r.leftLocked(p)
			r.attemptEndsLocked(&p.write)
		}
		todo.expiredWrites = append(todo.expiredWrites, expired...)
	}
	for l := range r.mu.waits.reads {
		if over(&l.rd.pending) {
			r.leaveLocked(l)
			todo.expiredReads = append(todo.expiredReads, l)
		}
	}
	for _, b := range r.mu.waits.blockers {
		answered := func(l *lockedRead) bool { return l.over }
		b.reads, b.asked = slices.DeleteFunc(b.reads, answered), slices.DeleteFunc(b.asked, answered)
	}
}

// deadlineLocked is the earliest time at which somebody stops waiting; zero: never.
func (r *Replica) deadlineLocked() (next time.Time) {
	earlier := func(p *Pending) {
		if at := deadline(p); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	r.mu.locks.EachBlocking(func(x *locks.Transaction[*parked]) {
		x.EachWaiter(func(_ string, p *parked) { earlier(&p.pending) })
	})
	for l := range r.mu.waits.reads {
		earlier(&l.rd.pending)
	}
	return next
}

// armLocked has lockTick called at a time, or not at all if it is zero.
func (r *Replica) armLocked(now, next time.Time) {
	w := &r.mu.waits
	switch {
	case r.node.hooks.lockTime != nil:
	case next.IsZero():
		if w.timer != nil {
			w.timer.Stop()
		}
		w.at = time.Time{}
	case w.at.IsZero() || next.Before(w.at):
		w.at = next
		if w.timer == nil {
			w.timer = time.AfterFunc(next.Sub(now), r.lockTick)
		} else {
			w.timer.Reset(next.Sub(now))
		}
	}
}

// tendedSoonLocked says that lockTick runs before anything is to be asked about those who have begun to wait just now.
func (r *Replica) tendedSoonLocked() bool {
	w := &r.mu.waits
	return r.node.PushDelay > 0 && r.node.hooks.lockTime == nil && !w.at.IsZero() && w.at.Before(time.Now().Add(r.node.PushDelay))
}

// lockTick runs when something has to be asked again, or somebody's time is up.
func (r *Replica) lockTick() {
	if !r.enter() {
		return
	}
	defer r.exit()
	r.mu.Lock()
	r.mu.waits.at = time.Time{}
	var todo lockWork
	r.tendLocked(&todo)
	r.mu.Unlock()
	todo.run(r)
}

// giveUpWaitsLocked refuses all that waits for transactions.
func (r *Replica) giveUpWaitsLocked(end *ending) {
	w := &r.mu.waits
	end.refusedWrites = append(end.refusedWrites, r.drainParkedLocked()...)
	for l := range w.reads {
		r.leaveLocked(l)
		end.waiters = append(end.waiters, l.rd)
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	for id, c := range w.clearings {
		c.overLocked(r, id)
	}
	*w = waits{order: w.order, pushes: w.pushes, attempts: w.attempts}
	r.mu.locks.DropInFlight()
	r.locksChangedLocked()
	clear(r.mu.records)
}

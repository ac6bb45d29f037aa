package concurrency

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// world is a manager with what is around it, in one goroutine: a queue of writes, entries on their
// way, transactions and their coordinator, and a time that is told.
type world struct {
	t        *rapid.T
	m        Manager
	config   Config
	now      time.Time
	sequence uint64

	transactions []*worldTransaction
	writes       []*worldWrite
	// queue are the writes to be evaluated, waiting those that wait, and for which lock.
	queue   []*worldWrite
	waiting map[*worldWrite]*Lock
	reads   []*worldRead
	entries []*worldEntry
	pushes  []Push
	// cached is at or above what was read at, highest at or above what was applied.
	cached, highest hlc.Timestamp
	order           int
	// calm: everything works.
	calm   bool
	counts map[string]int
}

type worldTransaction struct {
	txn.Info
	record *txn.Record
	// died: nothing is heard of its client any more.
	died bool
	// committed is when it was, in the order of all that happens.
	committed int
}

func (x *worldTransaction) state() kvpb.TransactionState {
	if x.record == nil {
		return kvpb.TransactionState_PENDING
	}
	return x.record.State
}

// worldWrite is a write, or an attempt of one.
type worldWrite struct {
	id       uint64
	kind     Kind
	of       *worldTransaction
	key      string
	span     bool
	volatile bool
	deadline time.Time
	history  History
	// conditional: it may do nothing. attempt counts those of the request.
	conditional bool
	// order is in which it began to wait.
	order  int
	answer string
}

type worldRead struct {
	Read
	at       hlc.Timestamp
	from, to string
	began    int
	waits    bool
	answer   string
}

// worldEntry is an entry on its way.
type worldEntry struct {
	changes    []Change
	resolution *Resolution
	more       bool
}

type silentOwner struct{}

func (silentOwner) ReevaluateWaiters()             {}
func (silentOwner) ContinueResolution(*Resolution) {}

var worldKeys = []string{"a", "b", "c", "d"}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: time.Unix(1_000_000, 0), waiting: map[*worldWrite]*Lock{},
		counts: map[string]int{}}
	metrics, _ := NewMetrics()
	w.config = Config{Metrics: metrics, Logger: slog.New(slog.DiscardHandler),
		Random: func() uint64 { return 0 },
		Pushes: true, ManualTime: func() bool { return true }, Load: admission.NewLoad(w.now),
		Disconnected: func(client uint64) bool { return client == 2 },
		Limits: Limits{MaxBlockers: 2, MaxLocks: 100, MaxSpanLocks: 4, TotalSpanLocks: 4, MaxWaiters: 40,
			MaxWaiterBytes: 9 * 35},
		PushDelay: 10 * time.Millisecond}
	w.config.Prepare()
	w.m.Init(&w.config, silentOwner{}, 1, 7)
	return w
}

func (w *world) timestamp() hlc.Timestamp { return hlc.Timestamp{Wall: w.now.UnixNano()} }

func (w *world) begin() {
	id := txn.ID{byte(len(w.transactions) + 1), 1}
	begun := hlc.Timestamp{Wall: w.now.UnixNano() - rapid.Int64Range(0, 5).Draw(w.t,
		"age")*int64(time.Second)}
	w.transactions = append(w.transactions, &worldTransaction{Info: txn.Info{
		ID: id, Begun: begun, Started: hlc.Max(begun, w.timestamp()), Keyspace: 7,
		Anchor: []byte("a")}})
}

func (w *world) transaction(id txn.ID) *worldTransaction {
	return w.transactions[id[0]-1]
}

// live draws a transaction that is not decided.
func (w *world) live() *worldTransaction {
	var live []*worldTransaction
	for _, x := range w.transactions {
		if x.state() == kvpb.TransactionState_PENDING {
			live = append(live, x)
		}
	}
	if len(live) == 0 {
		w.t.Skip("no transaction")
	}
	return rapid.SampledFrom(live).Draw(w.t, "transaction")
}

// describe is the write as a waiter.
func (w *world) describe(q *worldWrite) *Waiter {
	waiter := &Waiter{Element: q, Request: q.request(), Kind: q.kind, MayDoNothing: q.conditional,
		Deadline: q.deadline, Size: 9, History: &q.history}
	if q.of != nil {
		waiter.Transaction, waiter.Begun = q.of.ID, q.of.Begun
	}
	return waiter
}

// request: those with ids that 5 divides are of a client that is not connected any more.
func (q *worldWrite) request() mvcc.RequestID {
	client := uint64(1)
	if q.id%5 == 0 {
		client = 2
	}
	return mvcc.RequestID{Client: client, Sequence: q.id}
}

// wait has a write wait for a lock.
func (w *world) wait(q *worldWrite, l *Lock, key string, until Until) {
	if !w.m.Writes.MayWait(9) {
		w.finish(q, "too many wait")
		return
	}
	w.m.Writes.Wait(w.describe(q), l, key, until, w.now)
	w.order++
	q.order = w.order
	w.waiting[q] = l
}

func (w *world) finish(q *worldWrite, answer string) {
	if q.answer != "" {
		w.t.Fatalf("write %d is answered twice: %s, %s", q.id, q.answer, answer)
	}
	q.answer = answer
	w.counts["write: "+answer]++
}

// evaluate evaluates a write as a replica does.
func (w *world) evaluate(q *worldWrite) {
	w.m.Writes.Attempts.End(q.request(), &q.history)
	switch {
	case q.history.Retried:
		w.finish(q, "retried")
		return
	case q.of != nil && q.of.state() != kvpb.TransactionState_PENDING && q.kind != Resolve:
		w.finish(q, "its transaction is over")
		return
	}
	switch q.kind {
	case Plain:
		if l, key := w.inTheWay(q); l != nil {
			w.wait(q, l, key, UntilGone)
			return
		}
		if q.conditional {
			w.m.Writes.Attempts.EndEarlier(q.request())
		}
		w.finish(q, "written")
	case Resolve:
		w.release(q)
	default:
		w.acquire(q)
	}
	w.reevaluate()
}

func (w *world) inTheWay(q *worldWrite) (*Lock, string) {
	if q.span {
		return w.m.InSpan([]byte(q.key), nil)
	}
	return w.m.OnKey([]byte(q.key)), q.key
}

// acquire acquires a lock, or commits in one phase.
func (w *world) acquire(q *worldWrite) {
	if q.span {
		w.holdSpan(q)
		return
	}
	l := w.m.Get(q.key)
	switch {
	case l != nil && l.Transaction.ID != q.of.ID:
		w.wait(q, l, l.Key, UntilGone)
		return
	case l != nil && l.InFlight():
		w.wait(q, l, l.Key, UntilApplied)
		return
	}
	if l := w.m.SpanOver(q.key, q.of.ID); l != nil {
		w.wait(q, l, q.key, UntilGone)
		return
	}
	prepared := hlc.Max(w.timestamp(), w.cached.Next())
	state := State{Kind: kvpb.Mutation_PUT, Prepared: prepared, Acquired: w.now.UnixNano()}
	if q.kind == Commit {
		if x := w.m.Transaction(&q.of.Info); x != nil {
			w.finish(q, "it has locks")
			return
		}
		w.end(q.of, prepared)
		for _, p := range w.m.Writes.Cancel(func(x *Waiter) bool { return x.Transaction == q.of.ID }) {
			w.left(p, "cancelled")
		}
		w.finish(q, "committed")
		return
	}
	if q.volatile {
		if l == nil || l.Applied.Volatile {
			state.Kind = kvpb.Mutation_LOCK
			w.m.AcquireVolatile(q.key, q.of.Info, state)
		}
	} else {
		w.sequence++
		w.m.Acquire(q.key, q.of.Info, state, w.sequence)
		w.entries = append(w.entries,
			&worldEntry{changes: []Change{{Key: q.key, Of: q.of.Info, State: state}}})
	}
	w.finish(q, "acquired")
}

// holdSpan acquires the locks of [key, ∞).
func (w *world) holdSpan(q *worldWrite) {
	spans := func(yield func([]byte, []byte) bool) { yield([]byte(q.key), nil) }
	l, key, oldest := w.m.SpansInTheWay(spans, q.of.Begun, q.of.ID)
	acquired := oldest &&
		w.m.AcquireSpans(spans, q.of.Info, State{Kind: kvpb.Mutation_LOCK, Acquired: w.now.UnixNano()})
	switch {
	case l != nil:
		w.wait(q, l, key, UntilGone)
	case !acquired:
		w.finish(q, "too many spans")
	default:
		if l := w.m.KeyIn(q.key, "", q.of.ID); l != nil {
			w.wait(q, l, l.Key, UntilGone)
			return
		}
		w.finish(q, "holds")
	}
}

// release puts the release of a decided transaction's locks in flight, two for each entry.
func (w *world) release(q *worldWrite) {
	if q.of.state() == kvpb.TransactionState_PENDING {
		w.finish(q, "not decided")
		return
	}
	x := w.m.Transaction(&q.of.Info)
	if x == nil {
		w.finish(q, "resolved")
		return
	}
	w.m.Pushes.Learn(x, q.of.record.Status(), 0)
	_, inFlight := w.releaseSome(x, nil)
	switch x = w.m.Transaction(&q.of.Info); {
	case x == nil:
		w.finish(q, "resolved")
	case inFlight != nil:
		w.wait(q, inFlight, inFlight.Key, UntilApplied)
	default:
		x.Each(func(l *Lock) bool {
			w.wait(q, l, l.Key, UntilGone)
			return false
		})
	}
}

// releaseSome fills an entry. inFlight is a lock that cannot be released yet.
func (w *world) releaseSome(x *Transaction, of *Resolution) (n int, inFlight *Lock) {
	w.sequence++
	e := &worldEntry{resolution: of}
	var volatile []*Lock
	x.Each(func(l *Lock) bool {
		switch {
		case l.Releasing():
		case l.InFlight():
			inFlight = l
		case l.Applied.Volatile:
			volatile = append(volatile, l)
		case len(e.changes) == 2:
			e.more = true
		default:
			e.changes = append(e.changes, Change{Key: l.Key, Released: true})
			w.m.MarkReleased(l, w.sequence)
		}
		return true
	})
	if len(e.changes) > 0 {
		w.entries = append(w.entries, e)
	}
	var woken []*Waiter
	for _, l := range volatile {
		woken = append(woken, w.m.Release(l)...)
	}
	w.handOver(woken)
	return len(e.changes), inFlight
}

// handOver lets writes go on that waited for a volatile lock: the first at once, and those behind
// it wait again, if there is something to wait for.
func (w *world) handOver(woken []*Waiter) {
	if len(woken) == 0 {
		return
	}
	InOrder(woken)
	first := woken[0]
	w.m.Writes.LeaveOne(first)
	q := first.Element.(*worldWrite)
	delete(w.waiting, q)
	w.evaluate(q)
	for _, p := range woken[1:] {
		if l := w.m.OnKey(p.History.Conflict.Key); l != nil {
			w.waiting[p.Element.(*worldWrite)] = l
		}
	}
	w.requeue(w.m.Writes.WaitAgain(woken[1:]))
}

// requeue puts writes that were woken to the front of the queue.
func (w *world) requeue(woken []*Waiter) {
	w.m.Writes.Leave(woken)
	var all []*worldWrite
	for _, p := range woken {
		q := p.Element.(*worldWrite)
		if w.waiting[q] == nil {
			w.t.Fatalf("write %d goes on, and does not wait", q.id)
		}
		delete(w.waiting, q)
		all = append(all, q)
	}
	if !slices.IsSortedFunc(all, func(a, b *worldWrite) int { return a.order - b.order }) {
		w.t.Fatalf("writes go on in another order than that in which they came")
	}
	w.queue = append(all, w.queue...)
}

// left notes that the manager has taken out a write that is answered.
func (w *world) left(p *Waiter, answer string) {
	q := p.Element.(*worldWrite)
	if w.waiting[q] == nil {
		w.t.Fatalf("write %d is %s, and does not wait", q.id, answer)
	}
	delete(w.waiting, q)
	w.finish(q, answer)
}

// end decides a transaction at its coordinator: a commit if the timestamp is not zero.
func (w *world) end(x *worldTransaction, commit hlc.Timestamp) {
	for {
		d := txn.DecideEnd(x.record,
			&txn.End{Transaction: x.Info, Commit: !commit.IsZero(), Timestamp: commit}, w.present())
		if d.Refused != nil && d.Refused.Code == kvpb.ErrorCode_TRANSACTION_PUSHED {
			commit = d.Refused.Timestamp.Next()
			continue
		}
		if d.Record != nil {
			x.record = d.Record
		}
		break
	}
	w.order++
	x.committed = w.order
	w.counts["ended "+x.state().String()]++
}

func (w *world) present() txn.Present {
	return txn.Present{Physical: w.now.UnixNano(), Now: w.timestamp()}
}

// apply applies the oldest entry.
func (w *world) apply() {
	e := w.entries[0]
	w.entries = w.entries[1:]
	for _, c := range e.changes {
		w.highest = hlc.Max(w.highest, c.State.Prepared)
	}
	w.requeue(w.m.Apply(e.changes))
	w.reevaluate()
	if e.resolution != nil && w.m.Resolutions.EntryDone(e.resolution, e.more, w.now, w.now) {
		w.nextEntry(e.resolution)
	}
}

func (w *world) nextEntry(x *Resolution) {
	outcome, _ := w.m.Resolutions.NextEntry(x, w.now)
	n := 0
	if outcome != nil {
		for _, p := range w.m.Writes.Cancel(func(p *Waiter) bool {
			return p.Transaction == x.Transaction().ID && outcome.State == kvpb.TransactionState_ABORTED
		}) {
			w.left(p, "cancelled")
		}
		if of := w.m.Transaction(&x.Transaction().Info); of != nil {
			n, _ = w.releaseSome(of, x)
		}
	}
	if n == 0 && w.m.Resolutions.EntryDone(x, false, w.now, w.now) {
		w.t.Fatal("there is to be another entry after none")
	}
}

// reevaluate has what waits brought up to date.
func (w *world) reevaluate() {
	if w.m.Waiting() {
		var work Work
		w.m.Reevaluate(w.now, &work)
		w.do(&work)
	}
}

// do does what the manager leaves to be done.
func (w *world) do(work *Work) {
	for _, p := range work.ExpiredWrites {
		if q := p.Element.(*worldWrite); q.deadline.IsZero() || q.deadline.After(w.now) {
			w.t.Fatalf("write %d expires before its time", q.id)
		}
		w.left(p, "expired")
	}
	for _, r := range work.ExpiredReads {
		q := r.Element.(*worldRead)
		q.waits, q.answer = false, "expired"
		w.counts["read: expired"]++
	}
	for _, p := range work.Pushes {
		w.checkPush(p)
		w.pushes = append(w.pushes, p)
	}
	for _, of := range work.Resolve {
		if x := w.m.Resolutions.Start(of); x != nil {
			w.nextEntry(x)
		}
	}
	for _, r := range work.Reads {
		q := r.Element.(*worldRead)
		q.waits = false
		w.read(q)
	}
}

// read looks for locks in the way of a read, and serves it, or has it wait.
func (w *world) read(q *worldRead) {
	switch {
	case !q.Latest:
		q.Timestamp = q.at
	case !q.Settled.IsZero():
		q.Timestamp = hlc.Max(q.Settled, q.Committed)
	default:
		q.Timestamp = hlc.Max(hlc.Max(q.at, w.highest), q.Committed)
	}
	w.cached = hlc.Max(w.cached, q.Timestamp)
	if q.UncertainUntil = q.Uncertain; q.Latest {
		q.UncertainUntil = hlc.Timestamp{}
	}
	b := w.m.Blockers(&q.Read)
	if q.to == q.from {
		b.Key([]byte(q.from))
	} else {
		b.Span([]byte(q.from), []byte(q.to))
	}
	switch {
	case len(b.Locks) == 0:
		w.checkRead(q)
		q.answer = "served"
	case b.Yields() != nil:
		q.answer = "yields"
	default:
		q.waits = true
		var work Work
		w.m.WaitForAll(&b, w.now, &work)
		w.do(&work)
		return
	}
	w.counts["read: "+q.answer]++
}

// answer answers a push, or says that there is no answer.
func (w *world) answer(i int, lost bool) {
	p := w.pushes[i]
	w.pushes = slices.Delete(w.pushes, i, i+1)
	var work Work
	if lost {
		w.m.Answered(p, nil, errors.New("lost"), w.now, &work)
		w.do(&work)
		return
	}
	push, err := txn.ParsePush(p.Request)
	if err != nil {
		w.t.Fatal(err)
	}
	x := w.transaction(push.Pushee.ID)
	if !x.died {
		if d := txn.DecideHeartbeat(x.record, &txn.Heartbeat{Transaction: x.Info},
			w.present()); d.Record != nil {
			x.record = d.Record
		}
	}
	before := x.state()
	d := txn.DecidePush(x.record, push, w.present())
	if d.Record != nil {
		x.record = d.Record
	}
	if before != x.state() {
		w.counts["pushed: "+x.record.Reason.String()]++
		for _, p := range w.m.Writes.Aborted(x.ID) {
			w.requeue([]*Waiter{p})
		}
	}
	w.m.Answered(p, d.Status, nil, w.now, &work)
	w.do(&work)
}

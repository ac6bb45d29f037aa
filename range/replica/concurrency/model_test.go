package concurrency

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// TestManagerBesideModel: many transactions acquire locks of keys and spans, wait, push one
// another, commit, abort, die and are resolved, between plain writes and reads, while pushes are
// lost, and leadership epochs end. Whatever happens,
//
//   - what waits is what the model says, for locks that exist, and goes on in the order in which it
//     came;
//   - of the pushes of a transaction one of each kind is on its way, for the oldest that waits;
//   - a read that is served has no transaction in its way that may commit where it has read;
//   - in the end, when everything is answered, nothing waits and nothing is locked.
func TestManagerBesideModel(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		defer func() {
			for what, n := range w.counts {
				counts[what] += n
			}
		}()
		for range 3 {
			w.begin()
		}
		actions := map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if w.t = t; len(w.transactions) == 200 {
					t.Skip("enough")
				}
				w.begin()
			},
			"write": func(t *rapid.T) {
				w.t = t
				w.submit(&worldWrite{
					kind: Plain, key: w.key(),
					span:        rapid.IntRange(0, 5).Draw(t, "span") == 0,
					conditional: rapid.Bool().Draw(t, "conditional")})
			},
			"write again": func(t *rapid.T) { w.t = t; w.sendAgain() },
			"acquire": func(t *rapid.T) {
				w.t = t
				w.submit(&worldWrite{kind: Acquire, of: w.live(), key: w.key(),
					volatile: rapid.Bool().Draw(t, "volatile"),
					span:     rapid.IntRange(0, 9).Draw(t, "span") == 0})
			},
			"commit in one phase": func(t *rapid.T) {
				w.t = t
				w.submit(&worldWrite{kind: Commit, of: w.live(), key: w.key(), conditional: true})
			},
			"read":     func(t *rapid.T) { w.t = t; w.submitRead() },
			"evaluate": func(t *rapid.T) { w.t = t; w.evaluateAll() },
			"apply": func(t *rapid.T) {
				if w.t = t; len(w.entries) == 0 {
					t.Skip("nothing is on its way")
				}
				for range rapid.IntRange(1, len(w.entries)).Draw(t, "entries") {
					w.apply()
				}
			},
			"end":  func(t *rapid.T) { w.t = t; w.endSome() },
			"die":  func(t *rapid.T) { w.t = t; w.live().died = true },
			"push": func(t *rapid.T) { w.t = t; w.answerSome() },
			"resolve": func(t *rapid.T) {
				w.t = t
				w.submit(&worldWrite{kind: Resolve,
					of: rapid.SampledFrom(w.transactions).Draw(t, "transaction")})
			},
			"time passes": func(t *rapid.T) {
				w.t = t
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "ms")) * time.Millisecond)
				w.reevaluate()
			},
			"sweep": func(t *rapid.T) {
				w.t = t
				var work Work
				w.m.Sweep(w.now.UnixNano(), w.now, &work)
				w.do(&work)
			},
			"leadership ends": func(t *rapid.T) {
				if w.t = t; rapid.IntRange(0, 9).Draw(t, "ends") == 0 {
					w.giveUp()
				}
			},
			"": func(t *rapid.T) { w.t = t; w.check() },
		}
		for range 4 {
			t.Repeat(actions)
		}
		w.t = t
		w.settle()
	})
	t.Log(counts)
}

func (w *world) key() string { return rapid.SampledFrom(worldKeys).Draw(w.t, "key") }

// submit puts a write into the queue, or answers that there is no room.
func (w *world) submit(q *worldWrite) {
	q.id = uint64(len(w.writes) + 1)
	if rapid.IntRange(0, 3).Draw(w.t, "hurries") == 0 {
		q.deadline = w.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(w.t,
			"timeout")) * time.Millisecond)
	}
	w.writes, w.queue = append(w.writes, q), append(w.queue, q)
	if rapid.IntRange(0, 3).Draw(w.t, "queued") > 0 {
		w.evaluateAll()
	}
}

func (w *world) evaluateAll() {
	for len(w.queue) > 0 {
		w.evaluateNext()
	}
}

// sendAgain sends another attempt of a request that waits.
func (w *world) sendAgain() {
	var waits []*worldWrite
	for q := range w.waiting {
		if q.conditional {
			waits = append(waits, q)
		}
	}
	if len(waits) == 0 {
		w.t.Skip("nothing waits that may do nothing")
	}
	slices.SortFunc(waits, func(a, b *worldWrite) int { return a.order - b.order })
	q := *rapid.SampledFrom(waits).Draw(w.t, "write")
	q.history, q.order = History{}, 0
	w.queue = append(w.queue, &q)
}

func (w *world) evaluateNext() {
	q := w.queue[0]
	w.queue = w.queue[1:]
	w.evaluate(q)
}

func (w *world) submitRead() {
	w.order++
	q := &worldRead{at: w.timestamp(), began: w.order}
	q.Element = q
	q.from = w.key()
	if q.to = q.from; rapid.Bool().Draw(w.t, "span") {
		q.to = ""
	}
	if q.Latest = rapid.Bool().Draw(w.t, "latest"); !q.Latest {
		q.at.Wall -= rapid.Int64Range(0, 2000).Draw(w.t, "ago") * int64(time.Millisecond)
		if rapid.Bool().Draw(w.t, "uncertain") {
			q.Uncertain = w.timestamp()
		}
	}
	if rapid.IntRange(0, 3).Draw(w.t, "transactional") == 0 {
		x := w.live()
		q.Transaction, q.Begun, q.Yields = x.ID, x.Begun, rapid.Bool().Draw(w.t, "yields")
	}
	if rapid.IntRange(0, 3).Draw(w.t, "hurries") == 0 {
		q.Deadline = w.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(w.t,
			"timeout")) * time.Millisecond)
	}
	w.reads = append(w.reads, q)
	w.read(q)
}

// endSome ends a transaction of which nothing is in flight or under way.
func (w *world) endSome() {
	x := w.live()
	if w.m.Transaction(&x.Info) == nil && rapid.IntRange(0, 9).Draw(w.t, "unused") > 0 {
		w.t.Skip("it has locked nothing")
	}
	commit := rapid.Bool().Draw(w.t, "commit")
	if commit {
		at := w.timestamp()
		if of := w.m.Transaction(&x.Info); of != nil {
			of.Each(func(l *Lock) bool {
				commit = commit && !l.InFlight()
				at = hlc.Max(at, l.Newest().Prepared)
				return commit
			})
		}
		if commit {
			w.end(x, at)
			return
		}
	}
	w.end(x, hlc.Timestamp{})
}

func (w *world) answerSome() {
	if len(w.pushes) == 0 {
		w.t.Skip("nothing is asked")
	}
	i := rapid.IntRange(0, len(w.pushes)-1).Draw(w.t, "push")
	w.answer(i, rapid.IntRange(0, 5).Draw(w.t, "lost") == 0)
}

// giveUp ends the leadership epoch: entries on their way are lost, or applied later.
func (w *world) giveUp() {
	writes, reads := w.m.GiveUp()
	for _, p := range writes {
		w.left(p, "refused")
	}
	for _, r := range reads {
		q := r.Element.(*worldRead)
		if !q.waits {
			w.t.Fatalf("a read is refused that does not wait")
		}
		q.waits, q.answer = false, "refused"
	}
	w.counts["epochs"]++
	if rapid.Bool().Draw(w.t, "lost") {
		w.entries = nil
	}
}

// check compares the manager with the model.
func (w *world) check() {
	found := 0
	w.m.Writes.Each(func(x *Transaction, key string, p *Waiter) {
		q := p.Element.(*worldWrite)
		found++
		l := w.waiting[q]
		switch {
		case l == nil:
			w.t.Fatalf("write %d does not wait", q.id)
		case !w.m.Has(l) || l.Transaction != x || l.Key != key:
			w.t.Fatalf("write %d waits for %s of %s, and not for %s of %s", q.id, key, x.ID, l.Key,
				l.Transaction.ID)
		case p.Until() == UntilGone && q.kind != Resolve && p.Transaction == x.ID:
			w.t.Fatalf("write %d waits for its own transaction's lock to be gone", q.id)
		case p.Until() == UntilApplied && !l.InFlight():
			w.t.Fatalf("write %d waits for nothing", q.id)
		}
	})
	if found != len(w.waiting) || found != w.m.Waiters() || w.m.Writes.bytes != 9*found ||
		found > w.config.MaxWaiters {
		w.t.Fatalf("%d writes wait, of %d bytes, the model has %d", found, w.m.Writes.bytes,
			len(w.waiting))
	}
	w.checkQueues()
	w.checkAttempts()
	if n := int64(w.m.Len() + w.m.Spans()); w.m.Held() != n || (n == 0) != w.m.Empty() {
		w.t.Fatalf("%d locks are held, there are %d", w.m.Held(), n)
	}
	if s := &w.config.spans; s.count.Load() != int64(w.m.Spans()) ||
		w.m.Spans() > w.config.MaxSpanLocks {
		w.t.Fatalf("%d spans are counted, there are %d", s.count.Load(), w.m.Spans())
	}
}

// checkQueues: reads wait for as many transactions as they count, and what waits for an answer is
// asked.
func (w *world) checkQueues() {
	left := map[*readWait]int{}
	for x, q := range w.m.Pushes.queues {
		for _, l := range slices.Concat(q.reads, q.asked) {
			if !l.over {
				left[l]++
			}
		}
		open := func(p *push) (n int) {
			for i := range w.pushes {
				if w.pushes[i].push == p {
					n++
				}
			}
			return n
		}
		for _, p := range []*push{&q.timestamp, &q.abort} {
			if n := open(p); n > 1 || p.inFlight != (n == 1) {
				w.t.Fatalf("%d pushes of %s are on their way, in flight: %t", n, x.ID, p.inFlight)
			}
		}
		if len(q.asked) > 0 && !q.timestamp.inFlight {
			w.t.Fatalf("reads wait for the answer to a push of %s that was not sent", x.ID)
		}
	}
	waits := 0
	for _, r := range w.reads {
		if r.waits {
			waits++
		}
	}
	if waits != len(w.m.Reads.waiting) || waits != len(left) || w.m.Reads.Len() != waits {
		w.t.Fatalf("%d reads wait, %d of them for a transaction; the model has %d", len(w.m.Reads.waiting),
			len(left), waits)
	}
	for l, n := range left {
		if l.left != n || !l.read.Element.(*worldRead).waits {
			w.t.Fatalf("a read waits for %d transactions, and counts %d", n, l.left)
		}
	}
}

// checkAttempts: of the attempts of a request that have waited and are not finished at most one is
// without a later attempt, and it is known.
func (w *world) checkAttempts() {
	alive := map[uint64]int{}
	look := func(q *worldWrite) {
		if q.conditional && q.history.Conflict != nil && !q.history.Retried {
			alive[q.id]++
			if w.m.Writes.Attempts.unfinished[q.request()] != &q.history {
				w.t.Fatalf("the attempt of %d that waits, or did, is not known", q.id)
			}
		}
	}
	for q := range w.waiting {
		look(q)
	}
	for _, q := range w.queue {
		look(q)
	}
	for id, n := range alive {
		if n > 1 {
			w.t.Fatalf("%d attempts of %d may take effect", n, id)
		}
	}
	if len(alive) != w.m.Writes.Attempts.Len() {
		w.t.Fatalf("%d attempts are known, there are %d", w.m.Writes.Attempts.Len(), len(alive))
	}
}

// checkPush: nothing is aborted but for the oldest write that waits for it, of a client that is
// there.
func (w *world) checkPush(p Push) {
	if p.Request.Kind != kvpb.PushRequest_ABORT {
		return
	}
	push, err := txn.ParsePush(p.Request)
	if err != nil {
		w.t.Fatal(err)
	}
	waits := false
	for q, l := range w.waiting {
		if l.Transaction.ID != push.Pushee.ID || q.of == nil || q.of.ID == push.Pushee.ID {
			continue
		}
		gone := q.kind == Acquire && q.request().Client == 2
		waits = waits || !gone && q.of.ID == push.Pusher
		if !gone && txn.Older(q.of.Begun, q.of.ID, push.PusherBegun, push.Pusher) {
			w.t.Fatalf("%s is to be aborted for %s, and %s is older", push.Pushee.ID, push.Pusher,
				q.of.ID)
		}
	}
	if !waits {
		w.t.Fatalf("%s is to be aborted for %s, which does not wait for it",
			push.Pushee.ID, push.Pusher)
	}
}

// checkRead: nothing that is locked can be committed where the read does not see it.
func (w *world) checkRead(q *worldRead) {
	w.m.Each(q.from, q.to, func(l *Lock) bool {
		if q.from == q.to && l.Key != q.from {
			return false
		}
		x := w.transaction(l.Transaction.ID)
		s := l.Newest()
		limit := hlc.Max(q.Timestamp, q.UncertainUntil)
		if !s.Writes() || l.Transaction.ID == q.Transaction || limit.Less(s.Prepared) {
			return true
		}
		switch at := x.record; x.state() {
		case kvpb.TransactionState_PENDING:
			if at == nil || at.Timestamp.Less(q.Timestamp) {
				w.t.Fatalf("a read at %s does not wait for %s, which may commit below", q.Timestamp, x.ID)
			}
		case kvpb.TransactionState_COMMITTED:
			acknowledged := x.committed < q.began
			if at.Timestamp.LessEq(q.Timestamp) || acknowledged &&
				(q.Latest || at.Timestamp.LessEq(q.Uncertain)) {
				w.t.Fatalf("a read at %s (latest: %t, uncertain until %s) does not see %s,"+
					" committed at %s, before: %t",
					q.Timestamp, q.Latest, q.Uncertain, x.ID, at.Timestamp, acknowledged)
			}
		}
		return true
	})
}

// settle has everything answered and every transaction ended, until nothing waits.
func (w *world) settle() {
	w.calm = true
	for _, x := range w.transactions {
		if x.state() == kvpb.TransactionState_PENDING {
			w.end(x, hlc.Timestamp{})
		}
	}
	for range 1000 {
		w.evaluateAll()
		for len(w.entries) > 0 {
			w.apply()
		}
		for len(w.pushes) > 0 {
			w.answer(0, false)
		}
		w.check()
		open := len(w.queue) + len(w.entries) + len(w.pushes)
		waits := len(w.waiting) + w.m.Reads.Len() + len(w.m.Pushes.queues)
		if open+waits == 0 && w.m.Empty() {
			if n := len(w.m.Resolutions.underWay); n > 0 || w.config.Paced.Len() > 0 {
				w.t.Fatalf("in the end there are %d resolutions", n)
			}
			return
		}
		w.now = w.now.Add(300 * time.Millisecond)
		w.reevaluate()
		var work Work
		w.m.Sweep(w.now.UnixNano(), w.now, &work)
		w.do(&work)
	}
	w.t.Fatalf("in the end %d writes and %d reads wait, and there are %d locks", len(w.waiting),
		w.m.Reads.Len(), w.m.Held())
}

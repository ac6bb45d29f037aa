package command

import (
	"log/slog"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// lending is the coordination of a partition that has locks.
type lending struct {
	alone
	locks concurrency.Manager
	// over: the leadership epoch is. waits is the key that the write waits at.
	over  bool
	waits string
	until concurrency.Until
}

func newLending() *lending {
	l := &lending{}
	metrics, _ := concurrency.NewMetrics()
	c := &concurrency.Config{Logger: slog.New(slog.DiscardHandler), Metrics: metrics,
		ManualTime: func() bool { return true },
		Limits:     concurrency.Limits{MaxLocks: 10, MaxSpanLocks: 2, TotalSpanLocks: 2}}
	c.Prepare()
	l.locks.Init(c, nil, 3, 7)
	return l
}

func (l *lending) Locks(use func(*concurrency.Manager, bool)) {
	use(&l.locks, !l.over)
}

func (l *lending) Wait(_ *concurrency.Lock, key string, until concurrency.Until) *kvpb.Response {
	l.waits, l.until = key, until
	return nil
}

func (l *lending) Highest() hlc.Timestamp { return at(8) }

func transactionOf(n byte) txn.Info {
	return txn.Info{ID: txn.ID{0: n}, Keyspace: 7, Anchor: []byte("a"), Begun: at(1),
		Started: at(1)}
}

// lock gives a transaction an applied lock, acquired by request n of client n.
func (l *lending) lock(key string, n byte, kind kvpb.Mutation_Kind, prepared int64) {
	of := transactionOf(n)
	l.locks.Apply([]concurrency.Change{{Key: key, Of: of, State: concurrency.State{Kind: kind,
		Prepared: at(prepared), Request: requestOf(n)}}})
}

func requestOf(n byte) mvcc.RequestID { return mvcc.RequestID{Client: uint64(n), Sequence: 1} }

// TestPrepareAmongLocks: what a Prepare comes to, by the locks that stand.
func TestPrepareAmongLocks(t *testing.T) {
	put := func(key string, read bool) *kvpb.Mutation {
		return &kvpb.Mutation{Key: []byte(key), Kind: kvpb.Mutation_PUT, Read: read}
	}
	unlock := &kvpb.Mutation{Key: []byte("k"), Kind: kvpb.Mutation_UNLOCK}
	all := func(m ...*kvpb.Mutation) *kvpb.PrepareRequest {
		return &kvpb.PrepareRequest{Mutations: m}
	}
	hold := func(start, end string) *kvpb.PrepareRequest {
		return &kvpb.PrepareRequest{Volatile: true, ReturnValues: true,
			HoldSpans: []*kvpb.KeySpan{{Start: []byte(start), End: []byte(end)}}}
	}
	onePhase := func(reads string, m ...*kvpb.Mutation) *kvpb.PrepareRequest {
		s := &kvpb.ReadSet{At: wire.ToTimestamp(at(5))}
		if reads != "" {
			s.Keys = [][]byte{[]byte(reads)}
		}
		return &kvpb.PrepareRequest{Mutations: m, OnePhase: &kvpb.OnePhase{Reads: s}}
	}
	read := all(put("k", true))
	read.ReadAt = wire.ToTimestamp(at(5))
	for _, c := range []struct {
		name string
		q    *kvpb.PrepareRequest
		// locked has an own lock, or another transaction's.
		locked  func(*lending)
		outcome Outcome
		waits   string
		code    kvpb.ErrorCode
		at      int64
		held    bool
	}{
		{name: "nothing is locked", q: all(put("k", false)), outcome: Acquired, at: 6},
		{name: "another key is locked", q: all(put("k", false)),
			locked:  func(l *lending) { l.lock("b", 2, kvpb.Mutation_PUT, 7) },
			outcome: Acquired, at: 6},
		{name: "another transaction has it", q: all(put("k", false)),
			locked:  func(l *lending) { l.lock("k", 2, kvpb.Mutation_PUT, 7) },
			outcome: Waits, waits: "k"},
		{name: "another transaction has what was read", q: read,
			locked:  func(l *lending) { l.lock("k", 2, kvpb.Mutation_PUT, 7) },
			outcome: Answered, code: kvpb.ErrorCode_TRANSACTION_CONFLICT},
		{name: "an earlier attempt has it", q: all(put("k", false)),
			locked:  func(l *lending) { l.lock("k", 1, kvpb.Mutation_PUT, 7) },
			outcome: Answered, at: 7},
		{name: "another transaction's lock is not ended", q: all(unlock),
			locked:  func(l *lending) { l.lock("k", 2, kvpb.Mutation_LOCK, 7) },
			outcome: Answered, at: 6},
		{name: "spans that are free", q: hold("k", "m"), outcome: Answered, at: 8, held: true},
		{name: "a lock in a span", q: hold("k", "m"),
			locked:  func(l *lending) { l.lock("l", 2, kvpb.Mutation_PUT, 7) },
			outcome: Waits, waits: "l"},
		{name: "spans after the epoch", q: hold("k", "m"),
			locked: func(l *lending) { l.over = true }, outcome: EpochOver},
		{name: "a commit in one phase", q: onePhase("r", put("k", false)), outcome: Written},
		{name: "a commit over another's lock", q: onePhase("", put("k", false)),
			locked:  func(l *lending) { l.lock("k", 2, kvpb.Mutation_LOCK, 7) },
			outcome: Waits, waits: "k"},
		{name: "a commit that has read what another will write", q: onePhase("r", put("k", false)),
			locked:  func(l *lending) { l.lock("r", 2, kvpb.Mutation_PUT, 7) },
			outcome: Waits, waits: "r"},
		{name: "a commit that has read what another has read", q: onePhase("r", put("k", false)),
			locked:  func(l *lending) { l.lock("r", 2, kvpb.Mutation_LOCK, 7) },
			outcome: Written},
		{name: "a commit of what it has prepared", q: onePhase("", put("k", false)),
			locked:  func(l *lending) { l.lock("k", 1, kvpb.Mutation_PUT, 7) },
			outcome: Refused, code: kvpb.ErrorCode_INVALID_ARGUMENT},
		{name: "a commit that leaves a lock", q: onePhase("", put("k", false)),
			locked:  func(l *lending) { l.lock("b", 1, kvpb.Mutation_LOCK, 7) },
			outcome: Refused, code: kvpb.ErrorCode_INVALID_ARGUMENT},
	} {
		p := newPartition(t)
		p.now = 6
		l := newLending()
		if c.locked != nil {
			c.locked(l)
		}
		c.q.Transaction = transactionOf(1).Proto()
		q := &kvpb.Request{Id: 3, Sequence: 1, Command: &kvpb.Request_Prepare{Prepare: c.q}}
		e := p.evaluation(1, nil)
		e.Coordination, e.Request = l, requestOf(1)
		w, problem := Prepare.CheckWrite(p.d, q)
		if problem != nil {
			t.Fatalf("%s: %s", c.name, problem.Text)
		}
		e.Transaction = w.Transaction
		if err := Prepare.Evaluate(e, q); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var prepared hlc.Timestamp
		switch c.outcome {
		case Acquired:
			prepared = e.Acquisition.At
		case Answered:
			prepared = wire.FromTimestamp(e.Response.GetPrepare().GetPrepared())
		}
		var want hlc.Timestamp
		if c.at != 0 {
			want = at(c.at)
		}
		if e.Outcome != c.outcome || l.waits != c.waits || e.Response.GetError().GetCode() != c.code ||
			prepared != want || e.Response.GetPrepare().GetHeld() != c.held {
			t.Errorf("%s: came to %d, waits at %q, prepared at %s, answered %v",
				c.name, e.Outcome, l.waits, prepared, e.Response)
		}
	}
}

// TestResolveEndsLocks: a Resolve has the locks of the transactions that it names ended.
func TestResolveEndsLocks(t *testing.T) {
	p := newPartition(t)
	of := transactionOf(1)
	q := &kvpb.Request{Id: 3, Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
		Resolutions: []*kvpb.Resolution{{Transaction: of.ID.Bytes(), Status: &kvpb.TransactionStatus{
			State: kvpb.TransactionState_COMMITTED, Timestamp: wire.ToTimestamp(at(4))}}}}}}
	e := p.evaluation(1, &alone{})
	if err := Resolve.Evaluate(e, q); err != nil {
		t.Fatal(err)
	}
	e.Ended = 5
	if r := e.Respond(&e.Result, q, hlc.Timestamp{}); e.Outcome != Resolved ||
		len(e.Resolutions) != 1 || r.GetResolve().GetResolved() != 5 || r.Id != 3 {
		t.Errorf("it came to %d with %v, and is answered %v", e.Outcome, e.Resolutions, r)
	}
}

package command

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// alone is the coordination of a partition that has no transaction at work.
type alone struct {
	threshold hlc.Timestamp
	conflicts int
}

func (*alone) PendingRecord(*txn.Info) (*txn.Record, uint64) { return nil, 0 }
func (*alone) Believe(hlc.Timestamp) bool                    { return true }
func (*alone) Future(hlc.Timestamp) bool                     { return false }
func (*alone) Present() txn.Present                          { return txn.Present{} }
func (*alone) Limits(keys.KeyspaceID) txn.Limits             { return txn.Limits{} }
func (*alone) Physical() (int64, time.Duration)              { return 0, 0 }
func (*alone) Locks(func(*concurrency.Manager, bool))        {}
func (*alone) Now() time.Time                                { return time.Time{} }
func (a *alone) Threshold() hlc.Timestamp                    { return a.threshold }
func (*alone) SilentSince() int64                            { return 0 }
func (*alone) WaitFloor() hlc.Timestamp                      { return hlc.Timestamp{} }
func (*alone) Highest() hlc.Timestamp                        { return hlc.Timestamp{} }
func (*alone) Leadership() *kvpb.Leadership                  { return nil }
func (*alone) IsLeadership(*kvpb.Leadership) bool            { return true }
func (*alone) Busy() bool                                    { return false }
func (*alone) Wait(*concurrency.Lock, string, concurrency.Until) *kvpb.Response {
	return nil
}
func (a *alone) Count(event Event) {
	if event == Conflict {
		a.conflicts++
	}
}

// evaluation is one of the partition with the coordination, for a request of client 1.
func (p *partition) evaluation(sequence uint64, a *alone) *Evaluation {
	e := &Evaluation{
		Basis: Basis{State: p.state, Pending: p, Descriptor: p.d, PageBytes: 1 << 20,
			Coordination: a},
		Attempt: Attempt{Clock: at(p.now), Request: mvcc.RequestID{Client: 1, Sequence: sequence}}}
	p.t.Cleanup(func() { e.Close() })
	return e
}

func (p *partition) put(sequence uint64, key, value string, apply bool) {
	p.write(p.evaluate(sequence, putOf(key, value)), putOf(key, value), apply)
}

// TestValidateReads: reads are good until a key of theirs has a newer version, pending or applied.
func TestValidateReads(t *testing.T) {
	p := newPartition(t)
	p.put(1, "a", "1", true)
	p.put(2, "b", "1", false)
	p.put(3, "c", "1", true) // at 3
	spans := func(start, end string) *kvpb.ReadSet {
		return &kvpb.ReadSet{Spans: []*kvpb.KeySpan{{Start: []byte(start), End: []byte(end)}}}
	}
	ofKeys := func(all ...string) *kvpb.ReadSet {
		s := &kvpb.ReadSet{}
		for _, key := range all {
			s.Keys = append(s.Keys, []byte(key))
		}
		return s
	}
	for _, c := range []struct {
		name      string
		reads     *kvpb.ReadSet
		at        int64
		threshold int64
		key       string
		code      kvpb.ErrorCode
	}{
		{name: "nothing read, long ago", reads: ofKeys(), at: 1, threshold: 2},
		{name: "good", reads: ofKeys("a", "absent"), at: 1},
		{name: "good while pending", reads: ofKeys("b"), at: 2},
		{name: "changed, pending", reads: ofKeys("a", "b"), at: 1, key: "b",
			code: kvpb.ErrorCode_TRANSACTION_CONFLICT},
		{name: "changed, applied", reads: ofKeys("c"), at: 2, key: "c",
			code: kvpb.ErrorCode_TRANSACTION_CONFLICT},
		{name: "a good span", reads: spans("a", "c"), at: 1},
		{name: "a changed span", reads: spans("a", "d"), at: 2, key: "c",
			code: kvpb.ErrorCode_TRANSACTION_CONFLICT},
		{name: "too old", reads: ofKeys("a"), at: 1, threshold: 2,
			code: kvpb.ErrorCode_TIMESTAMP_TOO_OLD},
	} {
		a := &alone{}
		if c.threshold != 0 {
			a.threshold = at(c.threshold)
		}
		r, err := p.evaluation(9, a).validateReads(&kvpb.Request{Id: 7}, c.reads, at(c.at))
		if err != nil {
			t.Fatal(err)
		}
		conflict := c.code == kvpb.ErrorCode_TRANSACTION_CONFLICT
		if (r != nil) != (c.code != 0) || r != nil && (r.Error.Code != c.code || r.Id != 7) ||
			string(r.GetError().GetConflict().GetKey()) != c.key || (a.conflicts == 1) != conflict {
			t.Errorf("%s: %v, and %d conflicts are counted", c.name, r, a.conflicts)
		}
	}
}

// TestOnePhaseDuplicate: a retry finds the version of its first written key, pending or applied,
// and keys that are only locked have none.
func TestOnePhaseDuplicate(t *testing.T) {
	c := &kvpb.PrepareRequest{Mutations: []*kvpb.Mutation{
		{Key: []byte("l"), Kind: kvpb.Mutation_UNLOCK},
		{Key: []byte("a"), Kind: kvpb.Mutation_PUT, Value: []byte("2")},
		{Key: []byte("b"), Kind: kvpb.Mutation_DELETE}}}
	for _, apply := range []bool{true, false} {
		p := newPartition(t)
		p.put(1, "a", "1", true)
		e := p.evaluation(2, &alone{})
		if own, err := e.onePhaseDuplicate(c); err != nil || own.Found {
			t.Fatalf("the first attempt found %+v, %v", own, err)
		}
		if err := e.onePhaseOps(c); err != nil {
			t.Fatal(err)
		}
		if len(e.Ops) != 2 || !e.Ops[0].WasLive || e.Ops[0].Prior != at(1) ||
			e.Ops[1].WasLive || !e.Ops[1].Tombstone {
			t.Fatalf("it writes %+v", e.Ops)
		}
		e.Write(func(_ *Result, q *kvpb.Request, ts hlc.Timestamp) *kvpb.Response {
			return onePhaseResponse(q.Id, ts)
		})
		first := p.write(e, &kvpb.Request{Id: 3}, apply)
		again := p.evaluation(2, &alone{})
		again.CommitWait = true
		own, err := again.onePhaseDuplicate(c)
		if err != nil || !own.Found || (own.Sequence == 0) != apply || again.Hold != own.Timestamp ||
			own.Timestamp != wire.FromTimestamp(first.GetPrepare().Prepared) {
			t.Errorf("applied %t: the retry found %+v, %v; the first was told %v", apply, own, err, first)
		}
	}
}

// TestPreparedAbove: a lock is prepared above what is written there, and not at all if what was
// read has changed, unless the lock stays as it is.
func TestPreparedAbove(t *testing.T) {
	p := newPartition(t)
	p.put(1, "a", "1", true)
	p.put(2, "b", "1", false)
	c := &kvpb.PrepareRequest{ReadAt: wire.ToTimestamp(at(1)), Mutations: []*kvpb.Mutation{
		{Key: []byte("a"), Kind: kvpb.Mutation_PUT, Read: true},
		{Key: []byte("b"), Kind: kvpb.Mutation_PUT, Read: true}}}
	e := p.evaluation(3, &alone{})
	if _, changed, _, err := e.preparedAbove(c, nil, at(1)); err != nil || string(changed) != "b" {
		t.Errorf("%q has changed, %v", changed, err)
	}
	kept := map[string]struct{}{"b": {}}
	if ts, changed, _, err := e.preparedAbove(c, kept, at(1)); err != nil || changed != nil ||
		ts != at(2).Next() {
		t.Errorf("above %s, %q has changed, %v", ts, changed, err)
	}
	c.Mutations[1].Read = false
	if ts, changed, _, err := e.preparedAbove(c, nil, at(5)); err != nil || changed != nil ||
		ts != at(5) {
		t.Errorf("above %s, %q has changed, %v", ts, changed, err)
	}
}

// TestPreparedValues: values are those of the newest versions, and as many bytes as an answer has.
func TestPreparedValues(t *testing.T) {
	p := newPartition(t)
	p.put(1, "a", "1", true)
	p.put(2, "b", "2", false)
	lock := func(all ...string) (mutations []*kvpb.Mutation) {
		for _, key := range all {
			mutations = append(mutations, &kvpb.Mutation{Key: []byte(key), Kind: kvpb.Mutation_LOCK})
		}
		return mutations
	}
	e := p.evaluation(3, &alone{})
	values, ts, problem, err := e.preparedValues(lock("a", "absent", "b"), at(1))
	if err != nil || problem != nil || ts != at(2).Next() || len(values) != 3 ||
		string(values[0].Value) != "1" || values[1].Found || string(values[2].Value) != "2" {
		t.Errorf("%v above %s, %v, %v", values, ts, problem, err)
	}
	value := string(bytes.Repeat([]byte("v"), keys.MaxValueSize))
	var full []string
	for i := range request.MaxBatchBytes / keys.MaxValueSize {
		key := string(rune('m' + i))
		p.put(uint64(4+i), key, value, false)
		full = append(full, key)
	}
	for _, c := range []struct {
		keys []string
		fits bool
	}{{append(full, "absent"), true}, {append(full, "a"), false}} {
		_, _, problem, err := p.evaluation(99, &alone{}).preparedValues(lock(c.keys...), at(1))
		if err != nil || (problem == nil) != c.fits {
			t.Errorf("%d full values and %s: %v, %v", len(full), c.keys[len(full)], problem, err)
		}
	}
}

// TestCommittedVersion: a stored lock becomes a version above the one before it, and anything else
// is damage.
func TestCommittedVersion(t *testing.T) {
	p := newPartition(t)
	p.put(1, "a", "1", true)
	of, wrote := txn.ID{15: 1}, mvcc.RequestID{Client: 4, Sequence: 8}
	l := txn.Lock{Transaction: txn.Info{ID: of, Anchor: []byte("a"), Begun: at(1), Started: at(1)},
		Kind: kvpb.Mutation_PUT, Prepared: at(2), Request: wrote, Lifetime: keys.For(40),
		Value: []byte("2")}
	batch := p.state.NewBatch()
	defer batch.Close()
	key := txn.LockKey(keys.InternalKey(p.d, []byte("a")))
	if err := batch.Set(key, l.Append(nil), nil); err != nil {
		t.Fatal(err)
	}
	if err := p.state.Commit(batch); err != nil {
		t.Fatal(err)
	}
	e := p.evaluation(9, &alone{})
	op, request, closer, err := e.CommittedVersion([]byte("a"), of, at(2), at(3))
	if err != nil {
		t.Fatal(err)
	}
	// It lives from the commit on, and not from when it was locked.
	if string(op.Value) != "2" || op.Tombstone || !op.WasLive || request != wrote ||
		op.Expires != 43 {
		t.Errorf("%+v by %v", op, request)
	}
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name, key        string
		of               txn.ID
		prepared, commit int64
	}{
		{"no lock", "b", of, 2, 3},
		{"another transaction", "a", txn.ID{15: 2}, 2, 3},
		{"another prepare", "a", of, 1, 3},
		{"not above the version", "a", of, 2, 1},
	} {
		_, _, closer, err := e.CommittedVersion([]byte(c.key), c.of, at(c.prepared), at(c.commit))
		if !errors.Is(err, storage.ErrRecord) || closer != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

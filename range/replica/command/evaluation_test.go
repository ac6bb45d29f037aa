package command

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// partition is a partition without a replica: an engine, and pending writes on top of it. A test
// evaluates, writes what comes of it at the next timestamp, and applies it or leaves it pending.
type partition struct {
	t       *testing.T
	state   *engine.State
	d       *clusterpb.Partition
	pending proposal.Pending
	now     int64
	// above is what the key has been read at.
	above hlc.Timestamp
}

func newPartition(t *testing.T) *partition {
	t.Helper()
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	return &partition{t: t, state: state, d: partitionUpTo('z')}
}

// Newest implements Pending.
func (p *partition) Newest(key []byte) (mvcc.Version, uint64, uint64) {
	if w := p.pending.Newest(string(key)); w != nil {
		return w.Version(), w.Sequence, 0
	}
	return mvcc.Version{}, 0, uint64(p.now)
}

// Find implements Pending.
func (p *partition) Find(key []byte, above hlc.Timestamp, id mvcc.RequestID) (
	own Replayed, applied uint64) {
	if w := p.pending.Find(string(key), above, id); w != nil {
		own = Replayed{Found: true, Timestamp: w.Timestamp, Sequence: w.Sequence,
			CommitWait: w.CommitWait,
			Value:      w.Value}
		if before := w.Older(); before != nil {
			version := before.Version()
			own.BeforeKnown, own.WasLive = true, version.LiveAt(w.Timestamp)
		}
	}
	return own, uint64(p.now)
}

// Recent implements Pending.
func (p *partition) Recent([]byte, hlc.Timestamp) (v mvcc.Version, expires, ok bool) {
	return mvcc.Version{}, false, false
}

// Above implements Pending.
func (p *partition) Above(key []byte, ts hlc.Timestamp) hlc.Timestamp {
	return hlc.Max(ts, p.above)
}

// evaluate evaluates a request of client 1.
func (p *partition) evaluate(sequence uint64, q *kvpb.Request) *Evaluation {
	p.t.Helper()
	e := &Evaluation{
		Basis:   Basis{State: p.state, Pending: p, Descriptor: p.d, PageBytes: 1 << 20},
		Attempt: Attempt{Clock: at(p.now), Request: mvcc.RequestID{Client: 1, Sequence: sequence}}}
	if _, problem := Of(q).CheckWrite(p.d, q); problem != nil {
		p.t.Fatal(problem.Text)
	}
	if err := Of(q).Evaluate(e, q); err != nil {
		p.t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		p.t.Fatal(err)
	}
	return e
}

// write writes what has come of an evaluation, and returns the answer.
func (p *partition) write(e *Evaluation, q *kvpb.Request, apply bool) *kvpb.Response {
	p.t.Helper()
	if e.Outcome != Written {
		p.t.Fatalf("%v came to %d", q, e.Outcome)
	}
	p.now++
	ts := at(p.now)
	batch := p.state.NewBatch()
	defer batch.Close()
	for _, o := range e.Ops {
		if !o.Prior.Less(ts) {
			p.t.Fatalf("%s: %s is not above the version before it, %s", o.Key, ts, o.Prior)
		}
		if !apply {
			p.pending.Add(&proposal.Write{Key: string(o.Key), Timestamp: ts, Request: e.Request,
				Value: o.Value, Expires: o.Lifetime.ExpiryOf(ts),
				Tombstone: o.Tombstone, Sequence: uint64(p.now)})
			continue
		}
		h := mvcc.Header{Kind: mvcc.KindValue, Request: e.Request, Expires: o.Lifetime.ExpiryOf(ts)}
		if o.Tombstone {
			h.Kind = mvcc.KindTombstone
		}
		if err := mvcc.Write(batch, keys.InternalKey(p.d, o.Key), ts, h, o.Value); err != nil {
			p.t.Fatal(err)
		}
	}
	if e.Record != nil {
		if err := e.Record(ts, batch); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.state.Commit(batch); err != nil {
		p.t.Fatal(err)
	}
	return e.Respond(&e.Result, q, ts)
}

func putOf(key, value string) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte(key),
		Value: []byte(value)}}}
}

func incrementOf(key string, by int64) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_Increment{Increment: &kvpb.IncrementRequest{
		Key: []byte(key), By: by}}}
}

// TestRetriesFindTheirVersion: a second attempt of each kind of write is told what the first one
// was, whether that is applied or pending, and writes nothing.
func TestRetriesFindTheirVersion(t *testing.T) {
	// Tests of their own retry these two.
	retried := map[string]bool{DeleteRange.Name: true, Load.Name: true}
	for _, apply := range []bool{true, false} {
		for _, q := range []*kvpb.Request{
			putOf("a", "2"),
			incrementOf("a", 41),
			{Command: &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: []byte("a")}}},
			{Command: &kvpb.Request_CompareAndSwap{CompareAndSwap: &kvpb.CompareAndSwapRequest{
				Key:      []byte("a"),
				Expected: &kvpb.CompareAndSwapRequest_Value{Value: []byte("1")}, NewValue: []byte("2")}}},
			{Command: &kvpb.Request_WriteBatch{WriteBatch: &kvpb.WriteBatchRequest{
				Operations: []*kvpb.WriteOperation{
					{Key: []byte("a"), Value: []byte("2")}, {Key: []byte("b"), Delete: true}}}}},
		} {
			retried[Of(q).Name] = true
			p := newPartition(t)
			p.write(p.evaluate(1, putOf("a", "1")), putOf("a", "1"), true)
			first := p.write(p.evaluate(2, q), q, apply)
			again := p.evaluate(2, q)
			if again.Outcome != Duplicate || again.Response.String() != first.String() ||
				(again.Sequence == 0) != apply {
				t.Errorf("%s, applied %t: the retry came to %d, %v, entry %d; the first was told %v",
					Of(q).Name, apply, again.Outcome, again.Response, again.Sequence, first)
			}
		}
	}
	for _, c := range All() {
		if c.Dispatch == InQueue && !c.Transactional && !retried[c.Name] {
			t.Errorf("%s is not retried by this test", c.Name)
		}
	}
}

// TestASwapAsksWhatBecameOfABatch: a compare-and-swap that expects what no key has, with the id of
// a batch, tells whether that was written; if not, no attempt of it may be written later.
func TestASwapAsksWhatBecameOfABatch(t *testing.T) {
	batch := &kvpb.Request{Command: &kvpb.Request_WriteBatch{WriteBatch: &kvpb.WriteBatchRequest{
		Operations: []*kvpb.WriteOperation{
			{Key: []byte("a"), Value: []byte("2")}, {Key: []byte("b"), Delete: true}}}}}
	for _, apply := range []bool{true, false} {
		for _, key := range []string{"a", "b"} {
			ask := &kvpb.Request{Command: &kvpb.Request_CompareAndSwap{
				CompareAndSwap: &kvpb.CompareAndSwapRequest{Key: []byte(key), Delete: true,
					Expected: &kvpb.CompareAndSwapRequest_Version{Version: &kvpb.Timestamp{Logical: 1}}}}}
			p := newPartition(t)
			p.write(p.evaluate(1, putOf(key, "1")), putOf(key, "1"), true)
			if before := p.evaluate(2, ask); before.Outcome != NothingDone ||
				before.Response.GetCompareAndSwap().Swapped {
				t.Errorf("before it was written: %d, %v", before.Outcome, before.Response)
			}
			first := p.write(p.evaluate(2, batch), batch, apply)
			p.write(p.evaluate(3, putOf(key, "3")), putOf(key, "3"), apply)
			again := p.evaluate(2, ask)
			swap := again.Response.GetCompareAndSwap()
			if again.Outcome != Duplicate || !swap.GetSwapped() ||
				swap.Version.String() != first.GetWriteBatch().Version.String() {
				t.Errorf("%s, applied %t: the question came to %d, %v; the batch was told %v", key, apply,
					again.Outcome, again.Response, first)
			}
		}
	}
}

// TestDeleteRangeLeavesARecord: a retry of a range deletion finds the record of the first attempt.
func TestDeleteRangeLeavesARecord(t *testing.T) {
	p := newPartition(t)
	for i, key := range []string{"a", "b", "c"} {
		p.write(p.evaluate(uint64(i+1), putOf(key, "v")), putOf(key, "v"), true)
	}
	q := &kvpb.Request{Command: &kvpb.Request_DeleteRange{
		DeleteRange: &kvpb.DeleteRangeRequest{MaxRows: 2}}}
	first := p.write(p.evaluate(4, q), q, true)
	if d := first.GetDeleteRange(); d.Deleted != 2 || !d.More || string(d.Resume) != "c" {
		t.Errorf("a page of two: %v", d)
	}
	if again := p.evaluate(4, q); again.Outcome != Duplicate ||
		again.Response.String() != first.String() {
		t.Errorf("the retry came to %d, %v", again.Outcome, again.Response)
	}
	if next := p.evaluate(5, q); len(next.Ops) != 1 {
		t.Errorf("%d keys are left", len(next.Ops))
	}
}

// TestIncrement: sums add up, over what is pending too, and what is no number changes nothing.
func TestIncrement(t *testing.T) {
	p := newPartition(t)
	want := int64(0)
	for i, by := range []int64{5, -7, 0, 1 << 40} {
		q := incrementOf("n", by)
		want += by
		r := p.write(p.evaluate(uint64(i+1), q), q, i%2 == 0 && i < 2).GetIncrement()
		if r.Value != want || wire.FromTimestamp(r.Version) != at(p.now) {
			t.Errorf("%d added: %v, and the sum is %d", by, r, want)
		}
	}
	p.write(p.evaluate(9, putOf("word", "ten")), putOf("word", "ten"), true)
	for _, q := range []*kvpb.Request{incrementOf("word", 1), incrementOf("n", 1<<63-1)} {
		e := p.evaluate(10, q)
		if e.Outcome != NothingDone ||
			e.Response.GetError().GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT || len(e.Ops) != 0 {
			t.Errorf("%v came to %d, %v", q, e.Outcome, e.Response)
		}
	}
}

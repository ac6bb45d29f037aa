package command

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// onlyState is a partition of which nothing is asked but its state.
type onlyState struct{ refused *kvpb.Response }

func (onlyState) SameLeadership(*kvpb.Leadership) bool { return false }
func (o onlyState) TooOld(*kvpb.Request, hlc.Timestamp) *kvpb.Response {
	return o.refused
}
func (onlyState) Conflicts() {}

func at(wall int64) hlc.Timestamp { return hlc.Timestamp{Wall: wall} }

// partitionUpTo is partition 3 of keyspace 7, from the first key up to one.
func partitionUpTo(end byte) *clusterpb.Partition {
	prefix := keys.KeyspacePrefix(7)
	return &clusterpb.Partition{Id: 3, Keyspace: 7, Generation: 1,
		PrefixLength: keys.KeyspacePrefixLength,
		Start:        prefix, End: append(bytes.Clone(prefix), end)}
}

// newState is a range partition with a at 1, b at 1, deleted at 3, and c at 5, with commit wait.
func newState(t *testing.T) (*engine.State, *clusterpb.Partition) {
	t.Helper()
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	d := partitionUpTo('z')
	batch := state.NewBatch()
	defer batch.Close()
	for _, v := range []struct {
		key   string
		at    int64
		kind  mvcc.Kind
		waits bool
	}{{"a", 1, mvcc.KindValue, false}, {"b", 1, mvcc.KindValue, false},
		{"b", 3, mvcc.KindTombstone, false},
		{"c", 5, mvcc.KindValue, true}} {
		h := mvcc.Header{Kind: v.kind, CommitWait: v.waits}
		value := []byte(v.key)
		if v.kind == mvcc.KindTombstone {
			value = nil
		}
		if err := mvcc.Write(batch, keys.InternalKey(d, []byte(v.key)), at(v.at), h,
			value); err != nil {
			t.Fatal(err)
		}
	}
	if err := state.Commit(batch); err != nil {
		t.Fatal(err)
	}
	return state, d
}

// TestReadsOfAView: each read answers from the state at its timestamp, and says what it has seen
// that is not to be told before its time.
func TestReadsOfAView(t *testing.T) {
	state, d := newState(t)
	read := func(q *kvpb.Request, at hlc.Timestamp) (*kvpb.Response, hlc.Timestamp) {
		t.Helper()
		v := &View{State: state, Descriptor: d, At: at, Partition: onlyState{}}
		response, err := Of(q).Read(v, q)
		if err != nil {
			t.Fatal(err)
		}
		return response, v.Seen
	}
	get := func(key string) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}}
	}
	if r, _ := read(get("b"), at(2)); !r.GetGet().Found {
		t.Error("b is deleted at 3, and was not found at 2")
	}
	if r, _ := read(get("b"), at(3)); r.GetGet().Found {
		t.Error("b was found at 3")
	}
	if _, seen := read(get("c"), at(5)); seen != at(5) {
		t.Errorf("a read of c has seen %s", seen)
	}
	if r, seen := read(&kvpb.Request{Command: &kvpb.Request_BatchGet{BatchGet: &kvpb.BatchGetRequest{
		Keys: [][]byte{[]byte("c"), []byte("a")}}}}, at(4)); r.GetBatchGet().Values[0].Found ||
		string(r.GetBatchGet().Values[1].Value) != "a" || !seen.IsZero() {
		t.Errorf("a batch get at 4: %v, seen %s", r, seen)
	}
	scan := &kvpb.Request{Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{MaxRows: 1}}}
	r, _ := read(scan, at(9))
	if s := r.GetScan(); !s.More || string(s.Resume) == "" || len(s.Rows) == 0 {
		t.Errorf("a page of one row: %v", s)
	}
	count := &kvpb.Request{Command: &kvpb.Request_Count{
		Count: &kvpb.CountRequest{Start: []byte("b")}}}
	if r, seen := read(count, at(9)); r.GetCount().Count != 1 || seen != at(5) {
		t.Errorf("from b on: %v, seen %s", r, seen)
	}
}

// TestRefreshOfAView: a refresh finds what was written after the reads, up to its own timestamp.
func TestRefreshOfAView(t *testing.T) {
	state, d := newState(t)
	refresh := func(readAt, to int64, p Partition, reads *kvpb.ReadSet) *kvpb.Response {
		t.Helper()
		reads.At = wire.ToTimestamp(at(readAt))
		q := &kvpb.Request{Command: &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{
			Reads: reads, To: wire.ToTimestamp(at(to))}}}
		if _, problem := Refresh.CheckRead(d, q); problem != nil {
			t.Fatal(problem.Text)
		}
		response, err := Refresh.Read(&View{State: state, Descriptor: d, At: at(to), Partition: p}, q)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	b := func() *kvpb.ReadSet { return &kvpb.ReadSet{Keys: [][]byte{[]byte("b")}} }
	if r := refresh(1, 2, onlyState{}, b()); r.Error != nil {
		t.Errorf("b does not change from 1 to 2: %v", r)
	}
	if r := refresh(1, 3, onlyState{}, b()); string(r.GetError().GetConflict().GetKey()) != "b" {
		t.Errorf("b changes at 3: %v", r)
	}
	all := &kvpb.ReadSet{Spans: []*kvpb.KeySpan{{Start: []byte("b")}}}
	if r := refresh(3, 9, onlyState{}, all); string(r.GetError().GetConflict().GetKey()) != "c" {
		t.Errorf("c changes at 5: %v", r)
	}
	under := b()
	under.Leadership = &kvpb.Leadership{Term: 1}
	if r := refresh(1, 2, onlyState{}, under); !r.GetError().GetConflict().GetLeaderChanged() {
		t.Errorf("read under another leadership: %v", r)
	}
	old := request.Refuse(nil, kvpb.ErrorCode_TIMESTAMP_TOO_OLD, "too old")
	if r := refresh(1, 2, onlyState{old}, b()); r != old {
		t.Errorf("what is not kept any more cannot be validated: %v", r)
	}
}

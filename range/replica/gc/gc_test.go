package gc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// fakeReplica applies what is proposed at once.
type fakeReplica struct {
	state      *engine.State
	descriptor *clusterpb.Partition
	threshold  hlc.Timestamp
	full       bool
	entries    int
}

func (f *fakeReplica) ID() keys.PartitionID             { return keys.PartitionID(f.descriptor.Id) }
func (f *fakeReplica) Descriptor() *clusterpb.Partition { return f.descriptor }
func (f *fakeReplica) Threshold() hlc.Timestamp         { return f.threshold }
func (f *fakeReplica) BeginCollection()                 {}
func (f *fakeReplica) MayCollect() bool                 { return !f.full }
func (f *fakeReplica) Enter() bool                      { return true }
func (f *fakeReplica) Exit()                            {}
func (f *fakeReplica) Passed(hlc.Timestamp) bool        { return true }

func (f *fakeReplica) Stats() storage.Stats {
	s, err := storage.CountVersions(f.state, keys.PartitionSpan(f.descriptor),
		func() error { return nil })
	if err != nil {
		panic(err)
	}
	return s
}

func (f *fakeReplica) Propose(_ context.Context, _ proposal.Kind,
	evaluate func(Evaluation) (bool, error)) (bool, error) {
	e := &fakeEvaluation{f: f, batch: f.state.NewBatch()}
	defer e.batch.Close()
	propose, err := evaluate(e)
	if err != nil || !propose {
		return false, err
	}
	f.entries++
	f.threshold = hlc.Max(f.threshold, e.entry.Threshold)
	return true, f.state.Commit(e.batch)
}

type fakeEvaluation struct {
	f     *fakeReplica
	entry proposal.Entry
	batch *engine.StateBatch
}

func (e *fakeEvaluation) Descriptor() *clusterpb.Partition  { return e.f.descriptor }
func (e *fakeEvaluation) Entry() *proposal.Entry            { return &e.entry }
func (e *fakeEvaluation) Batch() *engine.StateBatch         { return e.batch }
func (e *fakeEvaluation) Removed(*mvcc.GarbageResult, bool) {}

// A collection removes what no read at or above the threshold sees, keeps what is protected, and
// does nothing where there is nothing to do.
func TestCollect(t *testing.T) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	prefix := keys.KeyspacePrefix(7)
	f := &fakeReplica{state: state, descriptor: &clusterpb.Partition{Id: 1, Keyspace: 7, Start: prefix,
		End: keys.PrefixEnd(prefix), PrefixLength: keys.KeyspacePrefixLength, Generation: 1}}
	at := func(second int64) hlc.Timestamp { return hlc.Timestamp{Wall: second * int64(time.Second)} }
	b := state.NewBatch()
	defer b.Close()
	for second := range int64(5) {
		err := mvcc.Write(b, keys.InternalKey(f.descriptor, []byte("key")), at(second+1),
			mvcc.Header{Kind: mvcc.KindValue}, []byte("value"))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := state.Commit(b); err != nil {
		t.Fatal(err)
	}
	m, _ := NewMetrics()
	g := New(Config{Replica: f, State: state, Clock: hlc.NewClock(nil, nil), Metrics: m,
		Window: time.Second})
	collect := func(now hlc.Timestamp, left uint64, swept bool) {
		t.Helper()
		result, err := g.Collect(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		if n := f.Stats().Versions; n != left || result.Swept != swept {
			t.Fatalf("%d versions are left, looked through: %t", n, result.Swept)
		}
	}
	g.SetKept(time.Second, at(2))
	collect(at(4), 4, true)
	collect(at(4), 4, false) // the threshold is where it was
	g.SetKept(time.Second, hlc.Timestamp{})
	f.full = true
	if _, err := g.Collect(t.Context(), at(4)); !errors.Is(err, ErrNoRoom) || f.threshold != at(2) {
		t.Fatalf("%v, threshold %s", err, f.threshold)
	}
	f.full = false
	collect(at(4), 3, true)
	collect(at(100), 1, true)
	g.RecordsFound(true)
	if !g.MayHaveGarbage() {
		t.Fatal("there may be records")
	}
	before := f.entries
	collect(at(101), 1, true)
	if g.MayHaveGarbage() || f.entries != before+1 {
		t.Fatalf("%d entries, may have garbage: %t", f.entries-before, g.MayHaveGarbage())
	}
	collect(at(102), 1, false) // there is only the newest version
}

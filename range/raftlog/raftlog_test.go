package raftlog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a log on a disk that can crash.
type fixture struct {
	t      testing.TB
	fs     *vfs.MemFS
	db     *engine.Log
	log    *Log
	synced chan []*Append
	failed error
}

func open(t testing.TB, fs *vfs.MemFS) *fixture {
	f := &fixture{t: t, fs: fs, synced: make(chan []*Append, 1000)}
	var err error
	if f.db, err = engine.OpenLog(engine.Options{FS: fs, Dir: "log"}); err != nil {
		t.Fatal(err)
	}
	f.log, err = Open(f.db, Options{TailBytes: 2000, OnAppended: func(batch []*Append, err error) {
		f.failed = err
		f.synced <- append([]*Append(nil), batch...)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) close() {
	f.log.Close()
	if err := f.db.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// submit stores appends and waits until they are durable.
func (f *fixture) submit(appends ...*Append) {
	f.log.Submit(appends)
	for n := 0; n < len(appends); {
		n += len(<-f.synced)
	}
	if f.failed != nil {
		f.t.Fatal(f.failed)
	}
}

func entries(term, from, to uint64) []*raftpb.Entry {
	var out []*raftpb.Entry
	for i := from; i <= to; i++ {
		index, term := i, term
		out = append(out, &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum(),
			Data: fmt.Appendf(nil, "%d/%d", term, i)})
	}
	return out
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

var identity = Identity{Group: 42, Replica: 2, Voters: []keys.ReplicaID{1, 2, 3},
	Descriptor: []byte("what the node wants to know")}

func applied(index, term uint64) func() Applied {
	return func() Applied {
		return Applied{Index: index, Term: term,
			Configuration: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
	}
}

func (f *fixture) openGroup(applied func() Applied) *Group {
	g, err := f.log.OpenGroup(identity, applied)
	if err != nil {
		f.t.Fatal(err)
	}
	return g
}

func TestIdentityAndTombstone(t *testing.T) {
	fs := vfs.NewMem()
	f := open(t, fs)
	if err := f.log.Create(identity,
		Identity{Group: 43, Replica: 1, Voters: []keys.ReplicaID{1}}); err != nil {
		t.Fatal(err)
	}
	if err := f.log.Create(identity); err != nil {
		t.Fatalf("creating it twice: %v", err)
	}
	other := identity
	other.Replica = 9
	if err := f.log.Create(other); err == nil {
		t.Fatal("a second replica of a group was created beside the first")
	}
	g := f.openGroup(applied(0, 0))
	f.submit(&Append{Group: g, HardState: hardState(1, 2, 0), Entries: entries(1, 1, 5)})
	f.close()

	f = open(t, fs)
	ids, err := f.log.Identities()
	if err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	if got := ids[0]; got.Group != 42 || got.Replica != 2 || len(got.Voters) != 3 ||
		string(got.Descriptor) != string(identity.Descriptor) || got.Removed {
		t.Fatalf("%+v", got)
	}
	if err := f.log.Remove(ids[0]); err != nil {
		t.Fatal(err)
	}
	for _, r := range []keys.ReplicaID{1, 2} {
		again := identity
		again.Replica = r
		if err := f.log.Create(again); !errors.Is(err, ErrRemoved) {
			t.Fatalf("replica %d came back: %v", r, err)
		}
	}
	// A later replica of the same group is another one, and starts with an empty log.
	later := identity
	later.Replica = 4
	later.Voters = []keys.ReplicaID{1, 3, 4}
	if err := f.log.Create(later); err != nil {
		t.Fatal(err)
	}
	g, err = f.log.OpenGroup(later, applied(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if last, _ := g.LastIndex(); last != 0 {
		t.Fatalf("its log ends at %d", last)
	}
	f.close()
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	fs := vfs.NewCrashableMem()
	f := open(t, fs)
	if err := f.log.Create(identity); err != nil {
		t.Fatal(err)
	}
	g := f.openGroup(applied(0, 0))
	f.submit(&Append{Group: g, HardState: hardState(1, 2, 0), Entries: entries(1, 1, 10)})
	f.submit(&Append{Group: g, HardState: hardState(2, 1, 3), Entries: entries(2, 8, 9)})
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	f.close()

	f = open(t, crashed)
	defer f.close()
	g = f.openGroup(applied(3, 1))
	hs, conf, err := g.InitialState()
	if err != nil || hs.GetTerm() != 2 || hs.GetVote() != 1 || hs.GetCommit() != 3 ||
		len(conf.Voters) != 3 {
		t.Fatal(hs, conf, err)
	}
	if last, _ := g.LastIndex(); last != 9 {
		t.Fatalf("the log ends at %d, the overwritten entry 10 is still there", last)
	}
	got, err := g.Entries(1, 10, 1<<20)
	if err != nil || len(got) != 9 || string(got[7].Data) != "2/8" || string(got[6].Data) != "1/7" {
		t.Fatal(got, err)
	}
}

func TestStateAheadOfLog(t *testing.T) {
	// A crash came between installing a snapshot of index 20 and resetting the log.
	fs := vfs.NewMem()
	f := open(t, fs)
	if err := f.log.Create(identity); err != nil {
		t.Fatal(err)
	}
	g := f.openGroup(applied(0, 0))
	f.submit(&Append{Group: g, HardState: hardState(1, 2, 5), Entries: entries(1, 1, 5)})
	f.close()
	f = open(t, fs)
	g = f.openGroup(applied(20, 3))
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	term, err := g.Term(20)
	if first != 21 || last != 20 || term != 3 || err != nil {
		t.Fatal(first, last, term, err)
	}
	if hs, _, _ := g.InitialState(); hs.GetCommit() != 20 || hs.GetTerm() != 3 {
		t.Fatal(hs)
	}
	if _, err := g.Entries(3, 4, 100); !errors.Is(err, raft.ErrCompacted) {
		t.Fatal(err)
	}
	f.close()
}

func TestLostStateIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	f := open(t, fs)
	if err := f.log.Create(identity); err != nil {
		t.Fatal(err)
	}
	g := f.openGroup(applied(9, 1))
	f.submit(&Append{Group: g, HardState: hardState(1, 2, 9), Entries: entries(1, 10, 15)})
	f.close()
	f = open(t, fs)
	defer f.close()
	if _, err := f.log.OpenGroup(identity, applied(3, 1)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a log that begins behind its state was opened: %v", err)
	}
}

// TestAgainstMemoryStorage does the same random things to a group and to Raft's own in-memory
// storage, across restarts.
func TestAgainstMemoryStorage(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		fs := vfs.NewMem()
		f := open(t, fs)
		if err := f.log.Create(identity); err != nil {
			r.Fatal(err)
		}
		var appliedIndex, appliedTerm uint64
		state := func() Applied { return applied(appliedIndex, appliedTerm)() }
		g := f.openGroup(state)
		model := raft.NewMemoryStorage()
		term := uint64(1)
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				last, _ := model.LastIndex()
				from := rapid.Uint64Range(appliedIndex+1, last+1).Draw(r, "from")
				if from <= last {
					term++
				}
				es := entries(term, from, from+rapid.Uint64Range(0, 20).Draw(r, "n"))
				if err := model.Append(es); err != nil {
					r.Fatal(err)
				}
				hs := hardState(term, 1, appliedIndex)
				if err := model.SetHardState(hs); err != nil {
					r.Fatal(err)
				}
				split := rapid.IntRange(0, len(es)-1).Draw(r, "split")
				batch := []*Append{{Group: g, HardState: hs, Entries: es[split:]}}
				if split > 0 {
					batch = append([]*Append{{Group: g, Entries: es[:split]}}, batch...)
				}
				f.submit(batch...)
			},
			"apply": func(r *rapid.T) {
				last, _ := model.LastIndex()
				appliedIndex = rapid.Uint64Range(appliedIndex, last).Draw(r, "index")
				appliedTerm, _ = model.Term(appliedIndex)
				g.Release(appliedIndex, rapid.Bool().Draw(r, "idle"))
			},
			"truncate": func(r *rapid.T) {
				first, _ := model.FirstIndex()
				if appliedIndex < first {
					return
				}
				to := rapid.Uint64Range(first, appliedIndex).Draw(r, "to")
				if err := g.Truncate(to); err != nil {
					r.Fatal(err)
				}
				if err := model.Compact(to); err != nil {
					r.Fatal(err)
				}
			},
			"snapshot": func(r *rapid.T) {
				last, _ := model.LastIndex()
				appliedIndex = last + rapid.Uint64Range(1, 10).Draw(r, "ahead")
				appliedTerm = term
				index, term := appliedIndex, appliedTerm
				if err := model.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
					Index: &index, Term: &term, ConfState: &raftpb.ConfState{}}}); err != nil {
					r.Fatal(err)
				}
				a := &Append{Group: g, HardState: hardState(term, 1, index)}
				a.Snapshot.Index, a.Snapshot.Term = index, term
				f.submit(a)
			},
			"restart": func(r *rapid.T) {
				f.close()
				f = open(t, fs)
				g = f.openGroup(state)
			},
			"": func(r *rapid.T) { compare(r, g, model) },
		})
		f.close()
	})
}

func compare(r *rapid.T, g *Group, model *raft.MemoryStorage) {
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	wantFirst, _ := model.FirstIndex()
	wantLast, _ := model.LastIndex()
	if first != wantFirst || last != wantLast {
		r.Fatalf("[%d,%d], want [%d,%d]", first, last, wantFirst, wantLast)
	}
	for i := first - 1; i <= last+1; i++ {
		got, err := g.Term(i)
		want, wantErr := model.Term(i)
		if got != want || !errors.Is(err, wantErr) {
			r.Fatalf("term of %d: %d %v, want %d %v", i, got, err, want, wantErr)
		}
	}
	if last < first {
		return
	}
	lo := rapid.Uint64Range(first, last).Draw(r, "lo")
	hi := rapid.Uint64Range(lo+1, last+1).Draw(r, "hi")
	limit := rapid.Uint64Range(0, 3000).Draw(r, "limit")
	got, err := g.Entries(lo, hi, limit)
	if err != nil || len(got) == 0 {
		r.Fatal(got, err)
	}
	want, err := model.Entries(lo, hi, 1<<40)
	if err != nil {
		r.Fatal(err)
	}
	for i, e := range got {
		if e.GetIndex() != want[i].GetIndex() || e.GetTerm() != want[i].GetTerm() ||
			string(e.Data) != string(want[i].Data) {
			r.Fatalf("entry %d: %v, want %v", i, e, want[i])
		}
	}
}

func TestFlippedBitIsReported(t *testing.T) {
	record := appendEntry(nil, entries(7, 30, 30)[0])
	if len(record) != entrySize(entries(7, 30, 30)[0]) {
		t.Fatal("entrySize is wrong")
	}
	for i := range record {
		for bit := range 8 {
			bad := append([]byte(nil), record...)
			bad[i] ^= 1 << bit
			if _, err := decodeEntry(bad, 30); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
	if _, err := decodeEntry(record, 31); !errors.Is(err, ErrCorrupt) {
		t.Fatal("an entry was taken for that of another index")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(appendEntry(nil, entries(1, 1, 1)[0]))
	f.Add(encodeHardState(hardState(1, 2, 3)))
	f.Add(encodeIdentity(identity))
	f.Add(encodeTruncation(truncation{3, 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, record := range [][]byte{b, sealed(append([]byte{recordVersion}, b...))} {
			if hs, err := decodeHardState(record); err == nil && string(encodeHardState(hs)) == "" {
				t.Fatal("empty")
			}
			_, _ = decodeEntry(record, 1)
			_, _ = decodeTruncation(record)
			_, _ = decodeIdentity(1, record)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, groups := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			f := open(b, vfs.NewMem())
			defer f.close()
			var all []*Group
			for i := range groups {
				id := identity
				id.Group += keys.PartitionID(i)
				if err := f.log.Create(id); err != nil {
					b.Fatal(err)
				}
				g, err := f.log.OpenGroup(id, applied(0, 0))
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, g)
			}
			data := make([]byte, 300)
			b.ReportAllocs()
			index := uint64(0)
			for b.Loop() {
				index++
				var batch []*Append
				for _, g := range all {
					i, term := index, uint64(1)
					batch = append(batch, &Append{Group: g,
						Entries: []*raftpb.Entry{{Index: &i, Term: &term,
							Type: raftpb.EntryNormal.Enum(), Data: data}}})
				}
				f.submit(batch...)
				for _, g := range all {
					g.Release(index, false)
				}
			}
		})
	}
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// snapshotTables writes what installing a partition's snapshot ingests: one table with the data,
// one that replaces all that the partition keeps by its id.
func snapshotTables(t *testing.T, s *State, id keys.PartitionID, generation string,
	rows int) []string {
	t.Helper()
	local, err := s.NewTableWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer local.Abort()
	span := keys.LocalSpan(id)
	if err := errors.Join(
		local.DeleteRange(span.Start, span.End),
		local.Set(keys.LocalKey(id, keys.SuffixApplied), []byte(generation)),
	); err != nil {
		t.Fatal(err)
	}
	data, err := s.NewTableWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer data.Abort()
	span = partitionSpan(id)
	if err := data.DeleteRange(span.Start, span.End); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := data.Set(version(fmt.Sprintf("p%d/%05d", id, i), 9),
			[]byte(generation)); err != nil {
			t.Fatal(err)
		}
	}
	if data.Size() == 0 && rows > 0 {
		t.Error("a table with rows has no size")
	}
	var paths []string
	for _, w := range []*TableWriter{local, data} {
		path, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func partitionSpan(id keys.PartitionID) keys.Span {
	return keys.DataSpan(keys.PrefixSpan(fmt.Appendf(nil, "p%d/", id)))
}

// fillPartition writes rows of a partition the usual way.
func fillPartition(t *testing.T, s *State, id keys.PartitionID, generation string, rows int) {
	t.Helper()
	for i := range rows {
		if err := apply(s, version(fmt.Sprintf("p%d/%05d", id, i), 5), []byte(generation),
			keys.LocalKey(id, keys.SuffixApplied), []byte(generation), keys.LocalKey(id,
				"old"), []byte(generation)); err != nil {
			t.Fatal(err)
		}
	}
}

// checkPartition: everything of the partition is of one generation, and it is complete.
func checkPartition(t *testing.T, s *State, id keys.PartitionID, want string, rows int) {
	t.Helper()
	if got := get(t, s, keys.LocalKey(id, keys.SuffixApplied)); got != want {
		t.Fatalf("partition %s: applied %q, want %q", id, got, want)
	}
	n := 0
	for _, row := range list(t, s) {
		if prefix := fmt.Sprintf(`data "p%d/`, id); len(row) > len(prefix) &&
			row[:len(prefix)] == prefix {
			n++
			if row[len(row)-len(want)-1:] != "="+want {
				t.Fatalf("partition %s of %s has %s", id, want, row)
			}
		}
	}
	if n != rows {
		t.Fatalf("partition %s of %s has %d rows, want %d", id, want, n, rows)
	}
}

// TestIngestReplaces: one call replaces the data span and the local keys of one partition, whether
// the old contents are in memtables or in tables, touches nothing else, and survives a crash at
// once.
func TestIngestReplaces(t *testing.T) {
	for _, flushed := range []string{"memtable", "tables", "both"} {
		t.Run(flushed, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			s := openTestState(t, Options{FS: fs})
			fillPartition(t, s, 100, "old", 50)
			fillPartition(t, s, 101, "other", 50)
			if flushed != "memtable" {
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if flushed == "both" {
				fillPartition(t, s, 100, "old", 20)
			}
			before, err := s.NewSnapshot()
			if err != nil {
				t.Fatal(err)
			}
			paths := snapshotTables(t, s, 100, "new", 30)
			if err := s.Ingest(context.Background(), paths); err != nil {
				t.Fatal(err)
			}
			check := func(s *State) {
				t.Helper()
				checkPartition(t, s, 100, "new", 30)
				checkPartition(t, s, 101, "other", 50)
				if got := get(t, s, keys.LocalKey(100, "old")); got != "" {
					t.Fatalf("a local key survived: %q", got)
				}
				if got := get(t, s, keys.LocalKey(101, "old")); got != "other" {
					t.Fatalf("another partition's local key: %q", got)
				}
			}
			check(s)
			// A snapshot from before still shows the old contents, also to readers that begin now.
			if got := get(t, before, keys.LocalKey(100, keys.SuffixApplied)); got != "old" {
				t.Fatalf("the earlier snapshot has %q", got)
			}
			if got := get(t, before, version("p100/00040", 5)); got != "old" {
				t.Fatalf("the earlier snapshot has %q", got)
			}
			if err := before.Close(); err != nil {
				t.Fatal(err)
			}
			span := partitionSpan(100)
			if size, err := s.db.EstimateDiskUsage(span.Start, span.End); err != nil || size == 0 {
				t.Errorf("size %d, %v", size, err)
			}
			if names, _ := fs.List("/data/state/" + ingestDirName); len(names) > 0 {
				t.Errorf("left over: %v", names)
			}
			crashed := fs.CrashClone(vfs.CrashCloneCfg{})
			_ = s.Close()
			check(openTestState(t, Options{FS: crashed}))
		})
	}
}

// TestIngestIsAtomic: a crash at any moment while a snapshot is installed and the partition written
// to before leaves all of the old or all of the new.
func TestIngestIsAtomic(t *testing.T) {
	for stop := 0; ; stop++ {
		fs := vfs.NewCrashableMem()
		faults := &faultFS{FS: fs}
		s := openTestState(t, Options{FS: faults})
		fillPartition(t, s, 100, "old", 20)
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		fillPartition(t, s, 100, "old", 20)
		// The crash comes at the n-th change of the disk.
		var crashed *vfs.MemFS
		changes := 0
		faults.set(func(op, _ string, n int) (int, error) {
			if changes++; changes == stop+1 {
				crashed = fs.CrashClone(vfs.CrashCloneCfg{})
			}
			return n, nil
		})
		paths := snapshotTables(t, s, 100, "new", 30)
		if err := s.Ingest(context.Background(), paths); err != nil {
			t.Fatal(err)
		}
		faults.set(nil)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if crashed == nil {
			if stop < 10 {
				t.Fatalf("only %d changes", stop)
			}
			return
		}
		s = openTestState(t, Options{FS: crashed})
		if get(t, s, keys.LocalKey(100, keys.SuffixApplied)) == "new" {
			checkPartition(t, s, 100, "new", 30)
		} else {
			checkPartition(t, s, 100, "old", 20)
		}
		if names, _ := crashed.List("/data/state/" + ingestDirName); len(names) > 0 {
			t.Fatalf("left over after the restart: %v", names)
		}
		_ = s.Close()
	}
}

// TestWritesAfterIngest: what is written after an ingest wins over it, before and after a crash.
func TestWritesAfterIngest(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openTestState(t, Options{FS: fs})
	fillPartition(t, s, 100, "old", 20)
	if err := s.Ingest(context.Background(), snapshotTables(t, s, 100, "new", 30)); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if err := apply(s, version(fmt.Sprintf("p100/%05d", i), 9), []byte(strconv.Itoa(i)),
			keys.LocalKey(100, keys.SuffixApplied), []byte("newer")); err != nil {
			t.Fatal(err)
		}
	}
	if got := get(t, s, version("p100/00007", 9)); got != "7" {
		t.Fatalf("after the write: %q", got)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkPartition(t, openTestState(t, Options{FS: crashed}), 100, "new", 30)
	if got := get(t, openTestState(t, Options{FS: fs}), version("p100/00007", 9)); got != "7" {
		t.Fatalf("after the restart: %q", got)
	}
}

// TestReadBesideIngest: a reader that begins between the moment at which Pebble has new tables and
// that at which it shows what is in them sees all that they replace.
func TestReadBesideIngest(t *testing.T) {
	var s *State
	looked := 0
	looks := false
	options := func(o Options) *pebble.Options {
		p := stateOptions(o)
		p.DebugCheck = func(*pebble.DB) error { // Pebble calls it just then
			if !looks {
				return nil
			}
			looked++
			checkPartition(t, s, 100, "old", 20)
			checkPartition(t, s, 101, "other", 20)
			return nil
		}
		return p
	}
	opened, err := openStore(Options{FS: vfs.NewMem(), Dir: "/data/state", CacheBytes: 1 << 20,
		MemTableBytes: 1 << 20}, kindState, options)
	if err != nil {
		t.Fatal(err)
	}
	s = &State{store: opened, tables: ingestDir{fs: opened.fs,
		dir: opened.fs.PathJoin(opened.dir, ingestDirName)}}
	defer s.Close()
	if err := s.tables.clean(); err != nil {
		t.Fatal(err)
	}
	fillPartition(t, s, 100, "old", 20)
	fillPartition(t, s, 101, "other", 20)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	paths := snapshotTables(t, s, 100, "new", 30)
	looks = true
	err = s.Ingest(context.Background(), paths)
	looks = false
	if err != nil || looked == 0 {
		t.Fatalf("%d looks, %v", looked, err)
	}
	checkPartition(t, s, 100, "new", 30)
	checkPartition(t, s, 101, "other", 20)
}

// TestIngestKeepsWhatItReplaces: until the tables show, compactions keep what the tables replace.
// Pebble has no hook between the moment at which compactions see the tables and that at which
// iterators do, so the test looks for the snapshot that is held across both, when Pebble takes
// the files.
func TestIngestKeepsWhatItReplaces(t *testing.T) {
	var s *State
	var ingesting atomic.Bool
	held := 0
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpLink && ingesting.Load() {
			held = max(held, s.db.Metrics().Snapshots.Count)
		}
		return nil
	}))
	s = openTestState(t, Options{FS: fs, Dir: "/data/state"})
	defer s.Close()
	for name, add := range map[string]func([]string) error{
		"Ingest":       func(paths []string) error { return s.Ingest(t.Context(), paths) },
		"CommitTables": func(paths []string) error { return s.CommitTables(t.Context(), paths, 1) },
	} {
		fillPartition(t, s, 100, "old", 20)
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		paths := snapshotTables(t, s, 100, "new", 30)
		held = 0
		ingesting.Store(true)
		err := add(paths)
		ingesting.Store(false)
		if err != nil || held != 1 {
			t.Errorf("%s: %v; %d snapshots were held", name, err, held)
		}
		if n := s.db.Metrics().Snapshots.Count; n != 0 {
			t.Errorf("%s: %d snapshots are left", name, n)
		}
	}
}

// TestIngestBesideWrites: a partition that has nothing in memory enters without a flush of what
// others have written, and survives a crash at once, though that does not.
func TestIngestBesideWrites(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openTestState(t, Options{FS: fs})
	fillPartition(t, s, 101, "other", 50)
	before := s.Metrics().Flush.Count
	if err := s.Ingest(context.Background(), snapshotTables(t, s, 100, "new", 30)); err != nil {
		t.Fatal(err)
	}
	if n := s.Metrics().Flush.Count - before; n > 0 {
		t.Errorf("%d flushes", n)
	}
	checkPartition(t, s, 101, "other", 50)
	s = openTestState(t, Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
	checkPartition(t, s, 100, "new", 30)
	checkPartition(t, s, 101, "", 0)
	// With something in memory it takes one, and all that was written is durable.
	fillPartition(t, s, 100, "old", 5)
	before = s.Metrics().Flush.Count
	if err := s.Ingest(context.Background(), snapshotTables(t, s, 100, "newer", 20)); err != nil {
		t.Fatal(err)
	}
	if n := s.Metrics().Flush.Count - before; n == 0 {
		t.Error("no flush")
	}
	checkPartition(t, s, 100, "newer", 20)
}

// TestExciseAll: any number of spans go with a few flushes, whether their contents are in memory,
// in tables or in both; nothing of them comes back after a crash, and nothing between them goes.
func TestExciseAll(t *testing.T) {
	const all = 120
	for _, flushed := range []string{"memtable", "tables", "both"} {
		t.Run(flushed, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			s := openTestState(t, Options{FS: fs})
			fill := func() {
				for i := range all {
					fillPartition(t, s, keys.PartitionID(100+i), "old", 3)
				}
			}
			fill()
			if flushed != "memtable" {
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if flushed == "both" {
				fill()
			}
			local, err := s.NewTableWriter()
			if err != nil {
				t.Fatal(err)
			}
			defer local.Abort()
			var spans []keys.Span
			for i := 0; i < all; i += 2 {
				id := keys.PartitionID(100 + i)
				spans = append(spans, partitionSpan(id))
				if err := local.DeleteRange(keys.LocalSpan(id).Start, keys.LocalSpan(id).End); err != nil {
					t.Fatal(err)
				}
			}
			path, err := local.Finish()
			if err != nil {
				t.Fatal(err)
			}
			before := s.Metrics().Flush.Count
			if err := s.ExciseAll(context.Background(), []string{path}, spans); err != nil {
				t.Fatal(err)
			}
			if n := s.Metrics().Flush.Count - before; n > 4 {
				t.Errorf("%d flushes for %d spans", n, len(spans))
			}
			for _, s := range []*State{s, openTestState(t,
				Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})} {
				for i := range all {
					if i%2 == 0 {
						checkPartition(t, s, keys.PartitionID(100+i), "", 0)
					} else {
						checkPartition(t, s, keys.PartitionID(100+i), "old", 3)
					}
				}
			}
			if names, _ := fs.List("/data/state/" + ingestDirName); len(names) > 0 {
				t.Errorf("left over: %v", names)
			}
		})
	}
}

// TestIngestNothing: what replaces a span may be nothing.
func TestIngestNothing(t *testing.T) {
	s := openTestState(t, Options{FS: vfs.NewMem()})
	fillPartition(t, s, 100, "old", 20)
	fillPartition(t, s, 101, "other", 20)
	if err := s.Ingest(context.Background(), snapshotTables(t, s, 100, "new", 0)); err != nil {
		t.Fatal(err)
	}
	checkPartition(t, s, 100, "new", 0)
	checkPartition(t, s, 101, "other", 20)
}

func TestIngestRefuses(t *testing.T) {
	s := openTestState(t, Options{FS: vfs.NewMem()})
	fillPartition(t, s, 100, "old", 20)
	// Two tables that overlap.
	paths := append(snapshotTables(t, s, 100, "new", 30), snapshotTables(t, s, 100, "newer", 30)...)
	if err := s.Ingest(context.Background(), paths); err == nil {
		t.Error("overlapping tables went in")
	}
	checkPartition(t, s, 100, "old", 20)
	if err := s.Ingest(context.Background(), []string{"/data/state/ingest/none.sst"}); err == nil {
		t.Error("a table that is not there went in")
	}
	w, err := s.NewTableWriter()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Set(version("b", 1), nil)); err != nil {
		t.Fatal(err)
	}
	if err := w.Set(version("a", 1), nil); err == nil {
		t.Error("keys out of order were taken")
	}
	w.Abort()
	w.Abort()
	s.DiscardTables(snapshotTables(t, s, 100, "new", 1))
	if names, _ := s.fs.List(s.tables.dir); len(names) > 0 {
		t.Errorf("left over: %v", names)
	}
	checkPartition(t, s, 100, "old", 20)
}

// TestIngestOnFailedDisk: an ingest whose manifest cannot be written fails, does not hang, and has
// not happened.
func TestIngestOnFailedDisk(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
		s := openTestState(t, Options{FS: fs})
		fillPartition(t, s, 100, "old", 20)
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		fillPartition(t, s, 100, "old", 20)
		paths := snapshotTables(t, s, 100, "new", 30)
		fs.set(func(op, name string, n int) (int, error) {
			if op == "sync" {
				return 0, syscall.EIO
			}
			return n, nil
		})
		if err := s.Ingest(context.Background(), paths); !errors.Is(err, ErrFailed) {
			t.Errorf("ingest: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = openTestState(t, Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
		checkPartition(t, s, 100, "old", 20)
		_ = s.Close()
	})
}

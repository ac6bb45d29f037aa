package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// commitTables commits rows of a partition, and what it has applied, as tables.
func commitTables(t *testing.T, s *State, id keys.PartitionID, n, rows int) {
	t.Helper()
	data, err := s.NewTableWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer data.Abort()
	for i := range rows {
		if err := data.Set(version(fmt.Sprintf("p%d/%04d/%04d", id, n, i), int64(n)),
			[]byte(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	local, err := s.NewTableWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer local.Abort()
	if err := local.Set(keys.LocalKey(id, keys.SuffixApplied), []byte(strconv.Itoa(n))); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, w := range []*TableWriter{local, data} {
		path, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	if err := s.CommitTables(context.Background(), paths, rows*30); err != nil {
		t.Fatal(err)
	}
}

// TestCrashKeepsPrefixOfTables: of partitions that commit batches and tables in turn, a crash keeps
// for each exactly its first commits, up to what it says that it has applied, and what was durable
// before.
func TestCrashKeepsPrefixOfTables(t *testing.T) {
	const rows = 20
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		fs := vfs.NewCrashableMem()
		s := openTestState(t, Options{FS: fs, MemTableBytes: 256 << 10})
		var last [3]int
		for range 150 {
			p := rng.IntN(len(last))
			id := keys.PartitionID(100 + p)
			last[p]++
			n := last[p]
			if rng.IntN(4) == 0 {
				commitTables(t, s, id, n, rows)
			} else if err := apply(s, version(fmt.Sprintf("p%d/%04d/%04d", id, n, 0), int64(n)),
				[]byte(strconv.Itoa(n)), keys.LocalKey(id, keys.SuffixApplied),
				[]byte(strconv.Itoa(n))); err != nil {
				t.Fatal(err)
			}
			if got := get(t, s, keys.LocalKey(id, keys.SuffixApplied)); got != strconv.Itoa(n) {
				t.Fatalf("seed %d: applied %s right after commit %d", seed, got, n)
			}
			switch rng.IntN(30) {
			case 0:
				if err := s.AsyncFlush(); err != nil {
					t.Fatal(err)
				}
			case 1:
				var durable [len(last)]int
				for p := range last {
					value, _, err := s.DurableGet(keys.LocalKey(keys.PartitionID(100+p), keys.SuffixApplied))
					if err != nil {
						t.Fatal(err)
					}
					durable[p], _ = strconv.Atoi(string(value))
				}
				crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100), RNG: rng})
				_ = s.Close()
				fs = crashed
				s = openTestState(t, Options{FS: fs, MemTableBytes: 256 << 10})
				for p := range last {
					id := keys.PartitionID(100 + p)
					kept, _ := strconv.Atoi(get(t, s, keys.LocalKey(id, keys.SuffixApplied)))
					if kept < durable[p] || kept > last[p] {
						t.Fatalf("seed %d: partition %s kept %d of %d commits, %d were durable", seed, id, kept,
							last[p], durable[p])
					}
					for n := 1; n <= last[p]; n++ {
						there := get(t, s, version(fmt.Sprintf("p%d/%04d/%04d", id, n, 0), int64(n))) != ""
						if there != (n <= kept) {
							t.Fatalf("seed %d: partition %s kept %d commits, and commit %d is there: %v", seed,
								id, kept, n, there)
						}
					}
					last[p] = kept
				}
			}
		}
		_ = s.Close()
	}
}

// TestTablesShowAtOnce: a snapshot that is taken while tables are committed sees all of them or
// none.
func TestTablesShowAtOnce(t *testing.T) {
	s := openTestState(t, Options{FS: vfs.NewMem()})
	defer s.Close()
	done := make(chan error, 1)
	go func() {
		for {
			snapshot, err := s.NewSnapshot()
			if err != nil {
				done <- err
				return
			}
			n, data := 0, 0
			if value, closer, err := snapshot.Get(keys.LocalKey(100, keys.SuffixApplied)); err == nil {
				n, _ = strconv.Atoi(string(value))
				_ = closer.Close()
			}
			i, err := snapshot.NewIter(nil)
			if err != nil {
				done <- err
				return
			}
			for ok := i.First(); ok; ok = i.Next() {
				data++
			}
			err = errors.Join(i.Close(), snapshot.Close())
			if want := n*10 + 1; err == nil && n > 0 && data != want {
				err = fmt.Errorf("applied %d, and there are %d keys", n, data)
			}
			if err != nil || n == 20 {
				done <- err
				return
			}
		}
	}()
	for n := 1; n <= 20; n++ {
		commitTables(t, s, 100, n, 10)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

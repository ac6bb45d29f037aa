package engine

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openTestLog(t *testing.T, o Options) *Log {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "/data/log"
	}
	l, err := OpenLog(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func openTestState(t *testing.T, o Options) *State {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "/data/state"
	}
	s, err := OpenState(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// version is a versioned state key.
func version(key string, wall int64) []byte {
	return keys.AppendTimestamp(keys.DataKey([]byte(key)), hlc.Timestamp{Wall: wall})
}

func put(l *Log, sync bool, kvs ...string) error {
	b := l.NewBatch()
	defer b.Close()
	for i := 0; i < len(kvs); i += 2 {
		if err := b.Set([]byte(kvs[i]), []byte(kvs[i+1]), nil); err != nil {
			return err
		}
	}
	return l.Commit(b, sync)
}

func apply(s *State, kvs ...[]byte) error {
	b := s.NewBatch()
	defer b.Close()
	for i := 0; i < len(kvs); i += 2 {
		if err := b.Set(kvs[i], kvs[i+1], nil); err != nil {
			return err
		}
	}
	return s.Commit(b)
}

// get returns the value, or "" if there is none.
func get(t *testing.T, r Reader, key []byte) string {
	t.Helper()
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatalf("get %s: %v", keys.PrettyState(key), err)
	}
	defer closer.Close()
	return string(value)
}

// list is all keys and values of a reader, in order.
func list(t *testing.T, r interface {
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
}) []string {
	t.Helper()
	i, err := r.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	var all []string
	for ok := i.First(); ok; ok = i.Next() {
		all = append(all, fmt.Sprintf("%s=%s", keys.PrettyState(i.Key()), i.Value()))
	}
	if err := i.Error(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLogReadsWhatWasWritten(t *testing.T) {
	fs := vfs.NewMem()
	l := openTestLog(t, Options{FS: fs})
	if err := put(l, true, "a", "1", "b", "2"); err != nil {
		t.Fatal(err)
	}
	b := l.NewBatch()
	_ = b.Set([]byte("c"), []byte("3"), nil)
	_ = b.Delete([]byte("a"), nil)
	if err := l.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if _, _, err := l.Get([]byte("a")); !errors.Is(err, pebble.ErrNotFound) {
		t.Fatalf("a: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTestLog(t, Options{FS: fs})
	value, closer, err := l.Get([]byte("c"))
	if err != nil || string(value) != "3" {
		t.Fatalf("c = %q, %v", value, err)
	}
	_ = closer.Close()
}

func TestStateReadersSeeTheirMoment(t *testing.T) {
	s := openTestState(t, Options{FS: vfs.NewMem()})
	k := version("k", 5)
	if err := apply(s, k, []byte("one"), keys.LocalKey(100, keys.SuffixApplied),
		[]byte("1")); err != nil {
		t.Fatal(err)
	}
	snapshot, err := s.NewSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	b := s.NewIndexedBatch()
	defer b.Close()
	_ = b.Set(k, []byte("two"), nil)

	if got := get(t, b, k); got != "two" {
		t.Errorf("the batch reads %q", got)
	}
	if got := get(t, s, k); got != "one" {
		t.Errorf("the state reads %q before the commit", got)
	}
	if err := s.Commit(b); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, k); got != "two" {
		t.Errorf("the state reads %q after the commit", got)
	}
	if got := get(t, snapshot, k); got != "one" {
		t.Errorf("the snapshot reads %q", got)
	}
	if got := get(t, snapshot, version("k", 4)); got != "" {
		t.Errorf("the snapshot has another version: %q", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Run("a directory that is open", func(t *testing.T) {
		for name, o := range map[string]Options{
			"memory": {FS: vfs.NewMem(), Dir: "/data/state"},
			"disk":   {FS: vfs.Default, Dir: t.TempDir() + "/state"},
		} {
			s := openTestState(t, o)
			if _, err := OpenState(o); !errors.Is(err, ErrLocked) {
				t.Errorf("%s: second open: %v", name, err)
			}
			// The refusal must not have taken the lock away.
			if _, err := OpenState(o); !errors.Is(err, ErrLocked) {
				t.Errorf("%s: third open: %v", name, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			openTestState(t, o)
		}
	})
	t.Run("the other kind", func(t *testing.T) {
		fs := vfs.NewMem()
		_ = openTestLog(t, Options{FS: fs, Dir: "/x"}).Close()
		if _, err := OpenState(Options{FS: fs, Dir: "/x"}); !errors.Is(err, ErrWrongKind) {
			t.Errorf("open a log as a state: %v", err)
		}
	})
	for content, want := range map[string]error{
		"tidemark state 2\n":  ErrVersion,
		"tidemark state 1":    ErrWrongKind, // cut short
		"tidemark state x\n":  ErrWrongKind,
		"tidemark state -1\n": ErrWrongKind,
		"something\n":         ErrWrongKind,
		"":                    ErrWrongKind,
	} {
		fs := vfs.NewMem()
		_ = openTestState(t, Options{FS: fs, Dir: "/x"}).Close()
		writeFile(t, fs, "/x/"+versionFile, []byte(content))
		if _, err := OpenState(Options{FS: fs, Dir: "/x"}); !errors.Is(err, want) {
			t.Errorf("version file %q: %v, want %v", content, err, want)
		}
	}
	t.Run("a foreign directory", func(t *testing.T) {
		fs := vfs.NewMem()
		db, err := pebble.Open("/x", &pebble.Options{FS: fs, Logger: pebbleLogger{newTestDiskHealth()}})
		if err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
		if _, err := OpenState(Options{FS: fs, Dir: "/x"}); !errors.Is(err, ErrWrongKind) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if _, err := OpenState(Options{FS: vfs.NewMem()}); err == nil {
			t.Error("opened nothing")
		}
	})
}

func newTestDiskHealth() *diskHealth {
	o := Options{FS: vfs.NewMem(), Dir: "/"}
	_ = o.ensureDefaults(kindLog)
	return newDiskHealth(o, kindLog)
}

func writeFile(t *testing.T, fs vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append([]byte(nil), content...)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestFlushEndTells(t *testing.T) {
	flushed := make(chan struct{}, 100)
	s := openTestState(t, Options{FS: vfs.NewMem(), FlushEnd: func() { flushed <- struct{}{} }})
	if err := apply(s, version("k", 1), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, found, err := s.DurableGet(version("k", 1)); err != nil || found {
		t.Fatalf("durable before the flush: %v, %v", found, err)
	}
	if err := s.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	for {
		<-flushed
		value, found, err := s.DurableGet(version("k", 1))
		if err != nil {
			t.Fatal(err)
		}
		if found {
			if string(value) != "v" {
				t.Fatalf("durable value %q", value)
			}
			return
		}
	}
}

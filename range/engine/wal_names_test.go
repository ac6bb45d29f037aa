package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// walFiles are the WAL files of a log, by ascending number.
func walFiles(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("/data/log")
	if err != nil {
		t.Fatal(err)
	}
	var wals []string
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			wals = append(wals, path.Join("/data/log", name))
		}
	}
	slices.Sort(wals)
	return wals
}

// TestMissingWAL: a WAL file that holds a synced commit and is gone, or empty, after a kill is
// damage, and the error says which file.
func TestMissingWAL(t *testing.T) {
	for _, rotations := range []int{0, 1, 3} {
		mem := vfs.NewCrashableMem()
		l := openTestLog(t, Options{FS: mem})
		for i := range 20 {
			if err := put(l, true, fmt.Sprintf("%03d", i), fmt.Sprintf("%0500d", i)); err != nil {
				t.Fatal(err)
			}
			if rotations > 0 && i%(20/(rotations+1)) == 0 && i > 0 {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		killed := mem.CrashClone(vfs.CrashCloneCfg{})
		_ = l.Close()
		wals := walFiles(t, killed)
		newest := wals[len(wals)-1]
		for name, harm := range map[string]func(vfs.FS) error{
			"removed": func(fs vfs.FS) error { return fs.Remove(newest) },
			"emptied": func(fs vfs.FS) error { writeFile(t, fs, newest, nil); return nil },
			"zeroed": func(fs vfs.FS) error {
				writeFile(t, fs, newest, make([]byte, len(readFile(t, killed, newest))))
				return nil
			},
			"cut in the first record": func(fs vfs.FS) error {
				writeFile(t, fs, newest, readFile(t, killed, newest)[:10])
				return nil
			},
		} {
			fs := killed.CrashClone(vfs.CrashCloneCfg{})
			if err := harm(fs); err != nil {
				t.Fatal(err)
			}
			l, err := OpenLog(Options{FS: fs, Dir: "/data/log"})
			if err == nil {
				n := 0
				for n < 20 && has(t, l, fmt.Sprintf("%03d", n)) {
					n++
				}
				t.Errorf("%d rotations, %s: the log opened with %d of 20 acknowledged commits",
					rotations, name, n)
				_ = l.Close()
				continue
			}
			if !IsCorruption(err) || !strings.Contains(err.Error(), newest) {
				t.Errorf("%d rotations, %s: %v", rotations, name, err)
			}
		}
		l, err := OpenLog(Options{FS: killed, Dir: "/data/log"})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(put(l, true, "x", "y"), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrashAroundNaming: a crash before any step of a log that makes, reuses and removes its files
// leaves one that opens and has what was acknowledged; what was not synced is lost to varying
// degrees.
func TestCrashAroundNaming(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 8))
		mem := vfs.NewCrashableMem()
		type crash struct {
			fs    *vfs.MemFS
			acked int64
			op    string
		}
		var mu sync.Mutex
		var crashes []crash
		var acked atomic.Int64
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || strings.HasSuffix(op.Path, ".sst") {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			n, kept := acked.Load(), 100*rng.IntN(2)
			if strings.HasSuffix(op.Path, walNamesFile) {
				// At another length it would keep a name in a directory, and lose one that is
				// older.
				kept = 50 * rng.IntN(3)
			}
			crashes = append(
				crashes,
				crash{
					mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}),
					n,
					fmt.Sprint(op.Kind, " ", op.Path),
				},
			)
			return nil
		}))
		total := int64(0)
		for range 3 {
			l, err := OpenLog(Options{FS: fs, Dir: "/data/log", MemTableBytes: 256 << 10})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 12 {
				if err := put(l, true, fmt.Sprintf("%03d", total), "v"); err != nil {
					t.Fatal(err)
				}
				total++
				acked.Store(total)
				if i%4 == 3 {
					if err := errors.Join(put(l, false, "unsynced", "v"), l.Flush(),
						l.Flush()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		t.Log(len(crashes), "crashes")
		for i, c := range crashes {
			l, err := OpenLog(Options{FS: c.fs, Dir: "/data/log"})
			if err != nil {
				t.Fatalf("seed %d, crash %d before %s: %v", seed, i, c.op, err)
			}
			for n := range c.acked {
				if !has(t, l, fmt.Sprintf("%03d", n)) {
					t.Fatalf("seed %d, crash %d before %s: commit %d of %d is lost", seed, i, c.op,
						n, c.acked)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestMissingWALWherever: of a log that is killed at any moment, each file that is in the list is
// missed when it is gone, but the lowest while a newer one may have been made of it.
func TestMissingWALWherever(t *testing.T) {
	mem := vfs.NewCrashableMem()
	l := openTestLog(t, Options{FS: mem, MemTableBytes: 256 << 10})
	missed := 0
	for i := range 60 {
		if err := put(l, true, fmt.Sprintf("%03d", i), "v"); err != nil {
			t.Fatal(err)
		}
		if i%7 == 6 {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		killed := mem.CrashClone(vfs.CrashCloneCfg{})
		_, list, err := readWALNames(killed, "/data/log")
		if err != nil {
			t.Fatal(err)
		}
		wals := walFiles(t, killed)
		newest, _ := walNumber(wals[len(wals)-1])
		for n, f := range list.files {
			fs := killed.CrashClone(vfs.CrashCloneCfg{})
			if err := fs.Remove(fmt.Sprintf("/data/log/%06d.log", f.number)); err != nil {
				continue // it was reused
			}
			if n == 0 && newest > list.files[len(list.files)-1].number {
				continue
			}
			missed++
			if _, err := OpenLog(Options{FS: fs, Dir: "/data/log"}); !IsCorruption(err) {
				t.Fatalf("commit %d: file %d of %v is gone: %v", i, f.number, list.files, err)
			}
		}
	}
	if missed < 60 {
		t.Errorf("%d files missed", missed)
	}
}

// TestOlderVersionBetween: a version that does not know the list may have run on the directory
// since it was written.
func TestOlderVersionBetween(t *testing.T) {
	mem := vfs.NewMem()
	l := openTestLog(t, Options{FS: mem})
	if err := errors.Join(put(l, true, "a", "v"), l.Close()); err != nil {
		t.Fatal(err)
	}
	old := readFile(t, mem, "/data/log/"+walNamesFile)
	for range 2 { // as by that version: the list stays
		l = openTestLog(t, Options{FS: mem})
		if err := errors.Join(put(l, true, "b", "v"), l.Flush(), put(l, true, "c", "v"),
			l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, mem, "/data/log/"+walNamesFile, old)
	l = openTestLog(t, Options{FS: mem})
	if !has(t, l, "a") || !has(t, l, "c") {
		t.Error("lost")
	}
	// And a directory that has no list is taken as it is.
	if err := errors.Join(l.Close(), mem.Remove("/data/log/"+walNamesFile)); err != nil {
		t.Fatal(err)
	}
	l = openTestLog(t, Options{FS: mem})
	if err := errors.Join(put(l, true, "d", "v"), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// FuzzWALNames: whatever is in the file, the list is read or refused.
func FuzzWALNames(f *testing.F) {
	l := walList{options: [2]uint64{3, 7}, files: []namedWAL{{4, 100, 5}, {6, 200, 7}},
		seal: walSeal{6, 1000}}
	f.Add(append(l.encode(2), l.encode(3)...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		fs := vfs.NewMem()
		writeFile(t, fs, "/"+walNamesFile, content)
		slot, list, err := readWALNames(fs, "/")
		if err == nil && slot > 0 && len(list.files) > maxNamed {
			t.Error(len(list.files))
		}
		_, _ = checkWALNames(fs, "/", "OPTIONS-000003")
	})
}

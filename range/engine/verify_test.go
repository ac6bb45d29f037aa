package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// findFile is the largest file of a directory whose name has a part.
func findFile(t *testing.T, fs vfs.FS, dir, part string) (string, []byte) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found string
	var content []byte
	for _, name := range names {
		if strings.Contains(name, part) && !strings.HasPrefix(name, "marker") {
			if c := readFile(t, fs, path.Join(dir, name)); len(c) > len(content) {
				found, content = path.Join(dir, name), c
			}
		}
	}
	if found == "" {
		t.Fatalf("no %s in %v", part, names)
	}
	return found, content
}

// TestDamagedWAL: a wrong byte, or many, in the log's WAL make the open fail; if the open does not
// fail, nothing is missing but what came after the last commit that a later one vouches for.
func TestDamagedWAL(t *testing.T) {
	const commits = 60
	for _, c := range []struct {
		name   string
		rotate bool // a WAL of its own, as after the first one is full
		clean  bool // closed, not crashed
		size   int
		rounds int
	}{
		{"first", false, false, 1000, 100},
		{"second", true, false, 1000, 100},
		{"closed", true, true, 1000, 100},
		// batches of several chunks; Pebble takes a second to look for the wrong bit
		{"large", true, false, 40 << 10, 4},
		{"small", true, true, 10, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			l := openTestLog(t, Options{FS: mem})
			if c.rotate {
				if err := errors.Join(put(l, true, "x", "x"), l.Flush()); err != nil {
					t.Fatal(err)
				}
			}
			for i := range commits {
				if err := put(l, i%3 != 1, fmt.Sprintf("%03d", i),
					fmt.Sprintf("%0*d", c.size, i)); err != nil {
					t.Fatal(err)
				}
			}
			if c.clean {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			crashed := mem.CrashClone(vfs.CrashCloneCfg{})
			_ = l.Close()
			wal, content := findFile(t, crashed, "/data/log", ".log")
			// What may be lost without notice: the last two commits, one not synced and one not
			// vouched for; none if closed.
			keep := commits - 3
			if c.clean {
				keep = commits
			}
			// count opens the log with other contents of the WAL and returns how many commits are
			// there, or -1.
			count := func(content []byte) int {
				fs := crashed.CrashClone(vfs.CrashCloneCfg{})
				writeFile(t, fs, wal, content)
				l, err := OpenLog(Options{FS: fs, Dir: "/data/log"})
				if err != nil {
					if !IsCorruption(err) || !strings.Contains(err.Error(), "/data/log") {
						t.Errorf("not known as corruption: %v", err)
					}
					return -1
				}
				defer l.Close()
				n := 0
				for n < commits && has(t, l, fmt.Sprintf("%03d", n)) {
					n++
				}
				return n
			}
			if n := count(content); n != commits {
				t.Fatalf("%d of %d commits without any damage", n, commits)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			noticed := 0
			for range c.rounds {
				damaged := append([]byte(nil), content...)
				// The last batch and the end mark are spared: without them nothing is left that
				// could vouch.
				at := rng.IntN(len(damaged) - 100)
				sector := damaged[at:min(at+512, len(damaged)-100)]
				switch rng.IntN(4) {
				case 0:
					clear(sector)
				case 1:
					for i := range sector {
						sector[i] = byte(rng.Uint32())
					}
				default:
					damaged[at] ^= 1 << rng.IntN(8)
				}
				switch n := count(damaged); {
				case n == -1:
					noticed++
				case n < keep:
					t.Fatalf("damage at %d of %d: opened with %d of %d commits", at, len(content),
						n, commits)
				}
			}
			if noticed < c.rounds/2 {
				t.Errorf("noticed %d of %d", noticed, c.rounds)
			}
		})
	}
}

// TestTornWALIsNotDamage: whatever a crash leaves of what was not synced is taken for the end, and
// not for damage.
func TestTornWALIsNotDamage(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		mem := vfs.NewCrashableMem()
		l := openTestLog(t, Options{FS: mem, MemTableBytes: 256 << 10})
		for i := range 100 + rng.IntN(100) {
			if err := put(l, rng.IntN(8) == 0, fmt.Sprintf("%03d", i),
				string(make([]byte, rng.IntN(4<<10)))); err != nil {
				t.Fatal(err)
			}
		}
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		_ = l.Close()
		// Cut, and with zeros behind, as a preallocated file has.
		l = openTestLog(t, Options{FS: crashed})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCutWAL: a WAL that ends anywhere opens, unless what is missing was vouched for by something
// that is there: the list of files vouches for what the first sync covered.
func TestCutWAL(t *testing.T) {
	mem := vfs.NewCrashableMem()
	l := openTestLog(t, Options{FS: mem})
	for i := range 20 {
		if err := put(l, true, fmt.Sprintf("%03d", i), fmt.Sprintf("%0500d", i)); err != nil {
			t.Fatal(err)
		}
	}
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	_ = l.Close()
	wal, content := findFile(t, crashed, "/data/log", ".log")
	_, list, err := readWALNames(crashed, "/data/log")
	if err != nil || len(list.files) != 1 || list.files[0].length < 500 ||
		list.files[0].length > 1000 {
		t.Fatal(list, err)
	}
	for n := 0; n < len(content); n += 97 {
		for _, zeros := range []int{0, 100, 40 << 10} {
			fs := crashed.CrashClone(vfs.CrashCloneCfg{})
			writeFile(t, fs, wal, append(append([]byte(nil), content[:n]...),
				make([]byte, zeros)...))
			l, err := OpenLog(Options{FS: fs, Dir: "/data/log"})
			if known := uint64(n) < list.files[0].length; known != IsCorruption(err) ||
				!known && err != nil {
				t.Fatalf("cut at %d, %d zeros: %v", n, zeros, err)
			}
			if err == nil {
				_ = l.Close()
			}
		}
	}
}

// TestCutWALAfterClose: a log that was closed does not open when the end of its WAL is cut off,
// wherever, or overwritten; it opens as it was, also again and after a crash, and a list of files
// without the seal, as an earlier version writes it, opens as ever.
func TestCutWALAfterClose(t *testing.T) {
	mem := vfs.NewCrashableMem()
	const commits = 20
	for range 2 { // the second time it is a file of another run
		l := openTestLog(t, Options{FS: mem})
		for i := range commits {
			if err := put(l, true, fmt.Sprintf("%03d", i), fmt.Sprintf("%0500d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	closed := mem.CrashClone(vfs.CrashCloneCfg{})
	wal, content := findFile(t, closed, "/data/log", ".log")
	_, list, err := readWALNames(closed, "/data/log")
	if err != nil || list.seal.sequence != commits+1 {
		t.Fatal(list, err)
	}
	// end is where the last batch ends; what follows is no batch.
	end := readable(content, uint32(list.seal.number), func([]byte) {})
	for n := 0; n <= len(content); n += 61 {
		for _, zeros := range []int{0, 100} {
			fs := closed.CrashClone(vfs.CrashCloneCfg{})
			left := append(append([]byte(nil), content[:n]...), make([]byte, zeros)...)
			writeFile(t, fs, wal, left)
			l, err := OpenLog(Options{FS: fs, Dir: "/data/log"})
			// What is cut off may have been zeros.
			if cut := !bytes.HasPrefix(left, content[:end]); cut != IsCorruption(err) || !cut && err != nil {
				t.Fatalf("cut at %d of %d, %d zeros: %v", n, end, zeros, err)
			}
			if err == nil {
				_ = l.Close()
			}
		}
	}

	fs := closed.CrashClone(vfs.CrashCloneCfg{})
	for range 2 {
		l, err := OpenLog(Options{FS: fs, Dir: "/data/log"})
		if err != nil {
			t.Fatal(err)
		}
		if !has(t, l, "019") {
			t.Fatal("the last commit is gone")
		}
		fs = fs.CrashClone(vfs.CrashCloneCfg{}) // while it runs
		_ = l.Close()
	}

	fs = closed.CrashClone(vfs.CrashCloneCfg{})
	older := list
	older.seal = walSeal{}
	writeFile(t, fs, "/data/log/"+walNamesFile, append(older.encode(1000), older.encode(1001)...))
	writeFile(t, fs, wal, content[:end-1])
	l, err := OpenLog(Options{FS: fs, Dir: "/data/log"})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// TestDamagedManifest: a wrong byte before the last record of the manifest makes the open fail.
func TestDamagedManifest(t *testing.T) {
	mem := vfs.NewMem()
	s := openTestState(t, Options{FS: mem})
	for i := range 10 {
		if err := errors.Join(apply(s, version(fmt.Sprint(i), 1), []byte("v")),
			s.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	manifest, content := findFile(t, mem, "/data/state", "MANIFEST")
	last := 0
	if err := laterChunks(content, 0, 0,
		func(at int, _ []byte) error { last = at; return nil }); err != nil || last == 0 {
		t.Fatal(last, err)
	}
	for at := range content {
		damaged := append([]byte(nil), content...)
		damaged[at] ^= 0x08
		writeFile(t, mem, manifest, damaged)
		s, err := OpenState(Options{FS: mem, Dir: "/data/state"})
		if err == nil {
			_ = s.Close()
		}
		if at < last && !IsCorruption(err) {
			t.Fatalf("damage at %d, the last record is at %d: %v", at, last, err)
		}
		if err == nil {
			// What opened has written to the directory.
			break
		}
	}
}

// TestLogBatch: the mark does not show.
func TestLogBatch(t *testing.T) {
	l := openTestLog(t, Options{FS: vfs.NewMem(), MemTableBytes: 256 << 10})
	b := l.NewBatch()
	defer b.Close()
	for round := range 3 {
		if !b.Empty() || b.Count() != 0 || !hasMark(b.Repr()) {
			t.Fatalf("round %d: a new batch has %d changes", round, b.Count())
		}
		// The second is so large that Pebble does not put it in a memtable.
		value := make([]byte, 1+round*(300<<10))
		if err := b.Set([]byte(fmt.Sprint(round)), value, nil); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
	b2 := l.NewBatch()
	_ = b2.DeleteRange([]byte("0"), []byte("2"), nil)
	if err := errors.Join(l.Commit(b2, false), b2.Close()); err != nil {
		t.Fatal(err)
	}
	if has(t, l, "0") || has(t, l, "1") || !has(t, l, "2") {
		t.Error("range deletion")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Get([]byte("2")); !errors.Is(err, ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
}

// FuzzVerify: looking through any bytes neither panics nor takes long.
func FuzzVerify(f *testing.F) {
	f.Add([]byte{}, uint32(0))
	f.Add(make([]byte, 100), uint32(7))
	f.Fuzz(func(t *testing.T, content []byte, number uint32) {
		_ = checkManifest(content, 0)
		_ = checkWAL(content, number, walSeal{1, 7})
	})
}

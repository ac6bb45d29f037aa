package engine

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestCrashKeepsSyncedLog: whatever a synced commit returned is there after a crash that loses what
// was not synced, and a commit is never there in part.
func TestCrashKeepsSyncedLog(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		l := openTestLog(t, Options{FS: fs, MemTableBytes: 256 << 10})
		synced := 0
		lost := map[int]bool{} // in an earlier crash
		for i := 1; i <= 200; i++ {
			sync := rng.IntN(3) == 0
			n := strconv.Itoa(i)
			value := n + string(make([]byte, rng.IntN(8<<10)))
			if err := put(l, sync, "a"+n, value, "b"+n, value); err != nil {
				t.Fatal(err)
			}
			if sync {
				synced = i
			}
			if rng.IntN(60) == 0 {
				crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100),
					RNG: rng})
				_ = l.Close()
				fs = crashed
				l = openTestLog(t, Options{FS: fs, MemTableBytes: 256 << 10})
				for j := 1; j <= i; j++ {
					a, b := has(t, l, "a"+strconv.Itoa(j)), has(t, l, "b"+strconv.Itoa(j))
					if a != b {
						t.Fatalf("seed %d: commit %d is there in part", seed, j)
					}
					if j <= synced && !a && !lost[j] {
						t.Fatalf("seed %d: commit %d is lost; synced up to %d", seed, j, synced)
					}
					lost[j] = !a
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func has(t *testing.T, l *Log, key string) bool {
	t.Helper()
	i, err := l.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	return i.SeekGE([]byte(key)) && string(i.Key()) == key
}

// TestCrashKeepsPrefixOfState: after a crash the state is exactly the first n commits, for some n
// that is at least what was durable before.
func TestCrashKeepsPrefixOfState(t *testing.T) {
	const commits = 300
	applied := keys.LocalKey(100, keys.SuffixApplied)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		fs := vfs.NewCrashableMem()
		s := openTestState(t, Options{FS: fs, MemTableBytes: 256 << 10})
		for i := 1; i <= commits; i++ {
			// Every commit writes its number in a key of its own, in one that is common to all, and
			// in many that it shares.
			n := []byte(strconv.Itoa(i))
			if err := apply(s,
				version("own"+string(n), int64(i)), n,
				version("shared"+strconv.Itoa(i%7), 1), n,
				version("large", int64(i)), make([]byte, rng.IntN(8<<10)),
				applied, n); err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(40) {
			case 0:
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			case 1:
				if err := s.AsyncFlush(); err != nil {
					t.Fatal(err)
				}
			case 2:
				value, _, err := s.DurableGet(applied)
				if err != nil {
					t.Fatal(err)
				}
				durable, _ := strconv.Atoi(string(value))
				crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100),
					RNG: rng})
				_ = s.Close()
				fs = crashed
				s = openTestState(t, Options{FS: fs, MemTableBytes: 256 << 10})
				last, _ := strconv.Atoi(get(t, s, applied))
				if last < durable || last > i {
					t.Fatalf("seed %d: applied %d after the crash, durable before was %d, "+
						"committed %d", seed, last, durable, i)
				}
				for j := 1; j <= i; j++ {
					if there := get(t, s, version("own"+strconv.Itoa(j),
						int64(j))) != ""; there != (j <= last) {
						t.Fatalf("seed %d: applied %d, but commit %d is there: %v", seed, last, j,
							there)
					}
				}
				for k := range 7 {
					want := ""
					for j := 1; j <= last; j++ {
						if j%7 == k {
							want = strconv.Itoa(j)
						}
					}
					if got := get(t, s, version("shared"+strconv.Itoa(k), 1)); got != want {
						t.Fatalf("seed %d: applied %d, shared%d is %q, want %q", seed, last, k, got,
							want)
					}
				}
				i = last
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// A proper end loses nothing.
		s = openTestState(t, Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
		if got := get(t, s, applied); got != strconv.Itoa(commits) {
			t.Fatalf("seed %d: applied %s after a proper close", seed, got)
		}
		_ = s.Close()
	}
}

// TestRunsInABubble: both engines work under virtual time, and everything they start ends with
// Close.
func TestRunsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41})
		l, err := OpenLog(Options{FS: fs, Dir: "/data/log"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := OpenState(Options{FS: fs, Dir: "/data/state"})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 50 {
					if err := put(l, true, fmt.Sprintf("%d/%d", w, i), "x"); err != nil {
						t.Error(err)
					}
					if err := apply(s, version(fmt.Sprintf("%d/%d", w, i), 1),
						[]byte("x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := s.Flush(); err != nil {
			t.Error(err)
		}
		if got := len(list(t, s)); got != 400 {
			t.Errorf("%d keys", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

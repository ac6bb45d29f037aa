package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultFS asks before it changes a file.
type faultFS struct {
	vfs.FS
	mu sync.Mutex
	// ask returns how many of n bytes may be written, and an error. op is "create", "write", "sync"
	// or "read".
	ask func(op, name string, n int) (int, error)
}

func (s *faultFS) set(ask func(op, name string, n int) (int, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask = ask
}

func (s *faultFS) do(op, name string, n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ask == nil {
		return n, nil
	}
	return s.ask(op, name, n)
}

func (s *faultFS) wrap(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultFile{File: f, fs: s, name: name}, nil
}

func (s *faultFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if _, err := s.do("create", name, 0); err != nil {
		return nil, err
	}
	f, err := s.FS.Create(name, c)
	return s.wrap(f, name, err)
}

func (s *faultFS) ReuseForWrite(o, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if _, err := s.do("create", name, 0); err != nil {
		return nil, err
	}
	f, err := s.FS.ReuseForWrite(o, name, c)
	return s.wrap(f, name, err)
}

func (s *faultFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, o...)
	return s.wrap(f, name, err)
}

func (s *faultFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	return s.wrap(f, name, err)
}

type faultFile struct {
	vfs.File
	fs   *faultFS
	name string
}

func (f *faultFile) Write(p []byte) (int, error) {
	n, err := f.fs.do("write", f.name, len(p))
	if n > 0 {
		if _, err := f.File.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (f *faultFile) ReadAt(p []byte, offset int64) (int, error) {
	if _, err := f.fs.do("read", f.name, len(p)); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, offset)
}

func (f *faultFile) Sync() error {
	if _, err := f.fs.do("sync", f.name, 0); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) SyncData() error { return f.Sync() }

// noSpace lets a few bytes through, as a disk does.
func noSpace(op, _ string, n int) (int, error) {
	if op == "sync" {
		return 0, nil
	}
	return n / 3, syscall.ENOSPC
}

func inBubble(t *testing.T, f func(t *testing.T, fs *faultFS, mem *vfs.MemFS)) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		f(t, &faultFS{FS: mem}, mem)
	})
}

// passTime lets virtual time pass: it returns when everything in the bubble has come to rest, again
// and again, for that long.
func passTime(d time.Duration) { time.Sleep(d) }

// TestDiskFullWaits: a full disk holds writes up and loses nothing, reads go on, and all goes on
// when there is room.
func TestDiskFullWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
		o := Options{FS: fs, MemTableBytes: 256 << 10, OnFailure: func(err error) { t.Error(err) }}
		l, s := openTestLog(t, o), openTestState(t, o)
		if err := errors.Join(put(l, true, "before", "1"),
			apply(s, version("before", 1), []byte("1"))); err != nil {
			t.Fatal(err)
		}
		fs.set(noSpace)
		// Enough for several WAL files, memtables and tables.
		large := strings.Repeat("x", 100<<10)
		done := make(chan error, 2)
		go func() {
			var err error
			for i := range 40 {
				err = errors.Join(err, put(l, true, fmt.Sprint(i), large))
			}
			done <- err
		}()
		go func() {
			var err error
			for i := range 40 {
				err = errors.Join(err, apply(s, version(fmt.Sprint(i), 1), []byte(large)))
			}
			done <- errors.Join(err, s.Flush())
		}()
		passTime(time.Minute)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("a full disk held nothing up: %v", err)
		default:
		}
		if !l.Full() || !s.Full() {
			t.Errorf("full: log %v, state %v", l.Full(), s.Full())
		}
		if value, closer, err := l.Get([]byte("before")); err != nil || string(value) != "1" {
			t.Errorf("read while full: %q, %v", value, err)
		} else {
			closer.Close()
		}
		if got := get(t, s, version("before", 1)); got != "1" {
			t.Errorf("read while full: %q", got)
		}

		fs.set(nil)
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if l.Full() || s.Full() {
			t.Errorf("still full: log %v, state %v", l.Full(), s.Full())
		}
		crashed := mem.CrashClone(vfs.CrashCloneCfg{})
		if err := errors.Join(l.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		l, s = openTestLog(t, Options{FS: crashed}), openTestState(t, Options{FS: crashed})
		for i := range 40 {
			value, closer, err := l.Get([]byte(fmt.Sprint(i)))
			if err != nil || string(value) != large {
				t.Fatalf("log %d: %d bytes, %v", i, len(value), err)
			}
			closer.Close()
			if got := get(t, s, version(fmt.Sprint(i), 1)); got != large {
				t.Fatalf("state %d: %d bytes", i, len(got))
			}
		}
		_ = l.Close()
		_ = s.Close()
	})
}

// TestCloseWhileFull: Close does not wait for room.
func TestCloseWhileFull(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, _ *vfs.MemFS) {
		l, s := openTestLog(t, Options{FS: fs}), openTestState(t, Options{FS: fs})
		if err := apply(s, version("k", 1), []byte("1")); err != nil {
			t.Fatal(err)
		}
		fs.set(noSpace)
		done := make(chan error, 1)
		go func() { done <- put(l, true, "k", "v") }()
		passTime(time.Minute)
		// The owner lets its writers go before it closes; one that waits for room goes with Close's
		// beginning.
		l.g.beginClose()
		if err := <-done; !errors.Is(err, ErrFailed) {
			t.Errorf("a write that had no room: %v", err)
		}
		_ = s.Close()
		_ = l.Close()
	})
}

// TestLowSpace: Full is true below the configured free space, and false again above it.
func TestLowSpace(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100, TotalBytes: 1000})
		l := openTestLog(t, Options{FS: fs, MinFreeBytes: 50})
		check := func(avail uint64, want bool) {
			t.Helper()
			mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: avail, TotalBytes: 1000})
			passTime(2 * freeSpacePeriod)
			synctest.Wait()
			if l.Full() != want || l.FreeBytes() != avail {
				t.Errorf("%d bytes free: full is %v, free is %d", avail, l.Full(), l.FreeBytes())
			}
		}
		check(100, false)
		check(49, true)
		check(50, false)
		_ = l.Close()
	})
}

// TestFailedSyncIsNeverAcknowledged: when an fsync or a write of the WAL fails under load, no
// commit that it covers returns nil, none hangs, OnFailure is called once, and a restart finds
// everything that was acknowledged.
func TestFailedSyncIsNeverAcknowledged(t *testing.T) {
	for _, op := range []string{"sync", "write", "create"} {
		for failAt := 5; failAt <= 50; failAt += 15 {
			t.Run(fmt.Sprint(op, failAt), func(t *testing.T) {
				inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
					failures := make(chan error, 10)
					l := openTestLog(t, Options{FS: fs, MemTableBytes: 64 << 10,
						OnFailure: func(err error) { failures <- err }})
					calls, limit := 0, failAt
					if op == "create" {
						limit = failAt / 15
					}
					fs.set(func(o, name string, n int) (int, error) {
						if o == op && path.Ext(name) == ".log" {
							if calls++; calls > limit {
								return 0, syscall.EIO
							}
						}
						return n, nil
					})
					var mu sync.Mutex
					acknowledged := map[string]bool{}
					var wg sync.WaitGroup
					for w := range 8 {
						wg.Go(func() {
							for i := 0; ; i++ {
								key := fmt.Sprintf("%d/%d", w, i)
								if err := put(l, true, key, strings.Repeat("x", 5000)); err != nil {
									if !errors.Is(err, ErrFailed) {
										t.Error(err)
									}
									return
								}
								mu.Lock()
								acknowledged[key] = true
								mu.Unlock()
							}
						})
					}
					wg.Wait()
					if err := <-failures; !errors.Is(err, ErrFailed) ||
						!errors.Is(err, syscall.EIO) {
						t.Errorf("failure: %v", err)
					}
					if _, _, err := l.Get([]byte("0/0")); !errors.Is(err, ErrFailed) {
						t.Errorf("get: %v", err)
					}
					if _, err := l.NewIter(nil); !errors.Is(err, ErrFailed) {
						t.Errorf("iterate: %v", err)
					}
					if err := l.Flush(); !errors.Is(err, ErrFailed) {
						t.Errorf("flush: %v", err)
					}
					passTime(time.Minute)
					if err := l.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
					if len(failures) > 0 {
						t.Errorf("failed again: %v", <-failures)
					}
					l = openTestLog(t, Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
					for key := range acknowledged {
						if !has(t, l, key) {
							t.Errorf("%s was acknowledged and is lost", key)
						}
					}
					_ = l.Close()
				})
			})
		}
	}
}

// TestFailedFlushIsNeverDurable: when a table or the manifest cannot be written, nothing that was
// in it counts as durable.
func TestFailedFlushIsNeverDurable(t *testing.T) {
	for _, c := range []struct{ op, file string }{
		{"write", ".sst"}, {"sync", ".sst"}, {"write", "MANIFEST"}, {"sync", "MANIFEST"},
		{"sync", "state"},
	} {
		t.Run(c.op+c.file, func(t *testing.T) {
			inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
				failures := make(chan error, 10)
				s := openTestState(t, Options{FS: fs,
					OnFailure: func(err error) { failures <- err }})
				k := version("k", 1)
				if err := errors.Join(apply(s, k, []byte("old")), s.Flush()); err != nil {
					t.Fatal(err)
				}
				fs.set(func(op, name string, n int) (int, error) {
					if op == c.op && (path.Ext(name) == c.file ||
						strings.HasPrefix(path.Base(name), c.file)) {
						return 0, syscall.EIO
					}
					return n, nil
				})
				if err := apply(s, k, []byte("new")); err != nil {
					t.Fatal(err)
				}
				if err := s.Flush(); !errors.Is(err, ErrFailed) {
					t.Errorf("flush: %v", err)
				}
				if value, found, err := s.DurableGet(k); !errors.Is(err, ErrFailed) {
					t.Errorf("durable: %q %v %v", value, found, err)
				}
				if err := apply(s, k, []byte("newer")); !errors.Is(err, ErrFailed) {
					t.Errorf("commit: %v", err)
				}
				if err := <-failures; !errors.Is(err, syscall.EIO) {
					t.Errorf("failure: %v", err)
				}
				passTime(time.Minute)
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				if len(failures) > 0 {
					t.Errorf("failed again: %v", <-failures)
				}
				s = openTestState(t, Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
				if got := get(t, s, k); got != "old" {
					t.Errorf("after the restart: %q", got)
				}
				_ = s.Close()
			})
		})
	}
}

// TestFlippedByteIsFound: one wrong byte anywhere in a table gives an error or, where it does not
// matter, the right data; never wrong data.
func TestFlippedByteIsFound(t *testing.T) {
	const rows = 300
	mem := vfs.NewMem()
	s := openTestState(t, Options{FS: mem})
	want := map[string]string{}
	for i := range rows {
		k, v := version(fmt.Sprintf("key%04d", i), 7), fmt.Sprintf("value%d", i*i)
		want[string(k)] = v
		if err := apply(s, k, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := mem.List("/data/state")
	var table string
	for _, name := range names {
		if path.Ext(name) == ".sst" {
			table = "/data/state/" + name
		}
	}
	content := readFile(t, mem, table)
	errorsSeen := 0
	for offset := 0; offset < len(content); offset += 41 {
		flipped := append([]byte(nil), content...)
		flipped[offset] ^= 0x10
		writeFile(t, mem, table, flipped)
		if readRows(t, mem, want) != nil {
			errorsSeen++
		}
	}
	if errorsSeen < 5 {
		t.Errorf("only %d of %d flips were noticed", errorsSeen, len(content)/41)
	}
	for _, n := range []int{0, 1, len(content) / 2, len(content) - 1} {
		writeFile(t, mem, table, content[:n])
		if readRows(t, mem, want) == nil {
			t.Errorf("a table cut to %d of %d bytes was not noticed", n, len(content))
		}
	}
	writeFile(t, mem, table, content)
	if err := readRows(t, mem, want); err != nil {
		t.Error(err)
	}
}

// readRows opens the state and reads every row; it fails the test on a wrong one and returns the
// first error.
func readRows(t *testing.T, fs vfs.FS, want map[string]string) error {
	t.Helper()
	s, err := OpenState(Options{FS: fs, Dir: "/data/state", OnFailure: func(error) {}})
	if err != nil {
		return err
	}
	defer s.Close()
	var first error
	bad := 0
	for k, v := range want {
		// An error is slow to make, and some good ones say enough.
		if bad == 5 {
			break
		}
		value, closer, err := s.Get([]byte(k))
		if err != nil {
			if errors.Is(err, pebble.ErrNotFound) {
				t.Fatalf("a row is missing without an error")
			}
			if bad++; first == nil {
				first = err
			}
			continue
		}
		if string(value) != v {
			t.Fatalf("wrong value %q, want %q", value, v)
		}
		closer.Close()
	}
	if first != nil && !IsCorruption(first) {
		t.Logf("not known as corruption: %v", first)
	}
	return first
}

// A table that can be had again does not wait for room: it ends with ErrNoRoom, and what it had on
// the disk is given back. One that is needed waits.
func TestSpareTableDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
		s := openTestState(t, Options{FS: fs, OnFailure: func(err error) { t.Error(err) }})
		spare, err := s.NewSpareTableWriter()
		if err != nil {
			t.Fatal(err)
		}
		needed, err := s.NewTableWriter()
		if err != nil {
			t.Fatal(err)
		}
		fs.set(noSpace)
		if w, err := s.NewSpareTableWriter(); !errors.Is(err, ErrNoRoom) {
			t.Errorf("another: %v, %v", w, err)
		}
		value := make([]byte, 100<<10) // that cannot be compressed
		rand.NewChaCha8([32]byte{}).Read(value)
		for i := 0; err == nil && i < 100; i++ {
			err = spare.Set(version(fmt.Sprintf("%03d", i), 1), value)
		}
		if err == nil { // it may be written by others, which have acknowledged it to no caller yet
			_, err = spare.Finish()
		}
		if !errors.Is(err, ErrNoRoom) {
			t.Errorf("written: %v", err)
		}
		spare.Abort()
		if err := needed.Set(version("needed", 1), value); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		var path string
		go func() {
			var err error
			path, err = needed.Finish()
			done <- err
		}()
		passTime(time.Minute)
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("a table that is needed did not wait: %v", err)
		default:
		}
		fs.set(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if names, err := mem.List("/data/state/ingest"); err != nil || len(names) != 1 {
			t.Errorf("left: %v, %v", names, err)
		}
		s.DiscardTables([]string{path})

		small, err := s.NewSpareTableWriter()
		if err != nil {
			t.Fatal(err)
		}
		if err := small.Set(version("small", 1), []byte("v")); err != nil {
			t.Fatal(err)
		}
		fs.set(noSpace)
		if path, err := small.Finish(); !errors.Is(err, ErrNoRoom) {
			t.Errorf("finish: %q, %v", path, err)
		}
		fs.set(nil)
		if names, err := mem.List("/data/state/ingest"); err != nil || len(names) != 0 {
			t.Errorf("left: %v, %v", names, err)
		}
		if s.Full() {
			t.Error("full")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

package engine

import (
	"errors"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestOpenOnABrokenDiskEnds: a log that cannot put into tables what it finds in its WAL is not
// opened, says why, and is none the worse for it. Pebble would try again for ever.
func TestOpenOnABrokenDiskEnds(t *testing.T) {
	for _, c := range []struct {
		name, op, file string
		err            error
		leave          bool
	}{
		{"tables are not created", "create", ".sst", syscall.EIO, false},
		{"tables are not written", "write", ".sst", syscall.EIO, false},
		{"tables are not synced", "sync", ".sst", syscall.EIO, false},
		{"manifest is not created", "create", "MANIFEST", syscall.EIO, false},
		{"manifest is not written", "write", "MANIFEST", syscall.EIO, false},
		{"manifest is not synced", "sync", "MANIFEST", syscall.EIO, false},
		{"no marker", "create", "marker", syscall.EIO, false},
		{"directory is not synced", "sync", "log", syscall.EIO, false},
		{"no new WAL", "create", ".log", syscall.EIO, false},
		{"options are not written", "write", ".dbtmp", syscall.EIO, false},
		{"no room when the owner leaves", "write", "", syscall.ENOSPC, true},
		{"no room for a file when the owner leaves", "create", "", syscall.ENOSPC, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
				l := openTestLog(t, Options{FS: fs})
				if err := put(l, true, "k", "v"); err != nil {
					t.Fatal(err)
				}
				crashed := mem.CrashClone(vfs.CrashCloneCfg{})
				_ = l.Close()
				fs.FS = crashed
				met := false
				fs.set(func(op, name string, n int) (int, error) {
					base := path.Base(name)
					if op == c.op && (c.file == "" || path.Ext(base) == c.file ||
						strings.HasPrefix(base, c.file)) {
						met = true
						return 0, c.err
					}
					return n, nil
				})
				leaving := make(chan struct{})
				done := make(chan error, 1)
				go func() {
					l, err := OpenLog(Options{FS: fs, Dir: "/data/log", Leaving: leaving})
					if err == nil {
						_ = l.Close()
					}
					done <- err
				}()
				if c.leave {
					passTime(time.Minute)
					close(leaving)
				}
				select {
				case err := <-done:
					if !met || !errors.Is(err, ErrFailed) || !errors.Is(err, c.err) {
						t.Errorf("opened: %v (met the fault: %t)", err, met)
					} else {
						t.Log(err)
					}
				case <-time.After(time.Minute):
					t.Error("a minute later it is still being opened")
					fs.set(nil)
					<-done
				}
				fs.set(nil)
				for _, disk := range []vfs.FS{crashed, crashed.CrashClone(vfs.CrashCloneCfg{})} {
					l = openTestLog(t, Options{FS: disk})
					if value, closer, err := l.Get([]byte("k")); err != nil ||
						string(value) != "v" {
						t.Errorf("after the next start: %q, %v", value, err)
					} else {
						_ = closer.Close()
					}
					_ = l.Close()
				}
			})
		})
	}
}

// TestNewManifestOnABrokenDirectory: Pebble panics if it is told that the directory cannot be
// synced when it has made another manifest, which it does when a database is opened, and when the
// manifest has become long.
func TestNewManifestOnABrokenDirectory(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, _ *vfs.MemFS) {
		s := openTestState(t, Options{FS: fs})
		k := version("k", 1)
		if err := errors.Join(apply(s, k, []byte("old")), s.Flush(), s.Close()); err != nil {
			t.Fatal(err)
		}
		marked, met := false, false
		fs.set(func(op, name string, n int) (int, error) {
			base := path.Base(name)
			marked = marked || op == "create" && strings.HasPrefix(base, "marker.manifest")
			if marked && op == "sync" && base == "state" {
				met = true
				return 0, syscall.EIO
			}
			return n, nil
		})
		s, err := OpenState(Options{FS: fs, Dir: "/data/state"})
		if err == nil {
			err = errors.Join(apply(s, k, []byte("new")), s.Flush())
			_ = s.Close()
		}
		if !met || !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("a flush that needs another manifest: %v (met the fault: %t)", err, met)
		}
		fs.set(nil)
		s = openTestState(t, Options{FS: fs})
		if got := get(t, s, k); got != "old" && got != "new" {
			t.Errorf("after the next start: %q", got)
		}
		d, err := s.fs.OpenDir("/data/state")
		if err != nil {
			t.Fatal(err)
		}
		fs.set(func(op, _ string, n int) (int, error) {
			if op == "sync" {
				return 0, syscall.EIO
			}
			return n, nil
		})
		if err := d.Sync(); err != nil || !errors.Is(s.Err(), ErrFailed) {
			t.Errorf("Pebble hears of it: %v; the engine's failure: %v", err, s.Err())
		}
		_ = d.Close()
	})
}

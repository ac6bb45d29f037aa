package engine

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestListOnABadDisk: what cannot be named is not acknowledged. Where there is no room, it waits
// for it; after a failure the log has failed. Either way a restart finds what was acknowledged
// before.
func TestListOnABadDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		sync  bool
		err   syscall.Errno
		close bool
	}{
		{name: "no room for a while", err: syscall.ENOSPC},
		{name: "no room, and it is closed", err: syscall.ENOSPC, close: true},
		{name: "it cannot be written", err: syscall.EIO},
		{name: "it cannot be synced", sync: true, err: syscall.EIO},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewCrashableMem()
				var bad atomic.Bool
				fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					faulty := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileWriteAt
					if c.sync {
						faulty = op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
					}
					if bad.Load() && faulty && strings.HasSuffix(op.Path, walNamesFile) {
						return c.err
					}
					return nil
				}))
				l := openTestLog(t, Options{FS: fs})
				if err := errors.Join(put(l, true, "a", "v"), l.Flush()); err != nil {
					t.Fatal(err)
				}
				bad.Store(true)
				done := make(chan error, 1)
				go func() { done <- put(l, true, "b", "v") }() // the first in its file
				time.Sleep(time.Minute)
				crashed := mem.CrashClone(vfs.CrashCloneCfg{})
				waits := c.err == syscall.ENOSPC
				select {
				case err := <-done:
					if waits || !errors.Is(err, ErrFailed) {
						t.Errorf("a commit whose file cannot be named: %v", err)
					}
				default:
					if !waits {
						t.Error("a commit hangs")
					}
				}
				switch {
				case c.close:
					l.g.beginClose()
					if err := <-done; !errors.Is(err, ErrFailed) {
						t.Errorf("a commit that waited for room, at the end: %v", err)
					}
				case waits:
					bad.Store(false)
					if err := <-done; err != nil {
						t.Errorf("a commit that waited for room: %v", err)
					}
					if err := put(l, true, "c", "v"); err != nil {
						t.Error(err)
					}
				}
				bad.Store(false)
				_ = l.Close()
				for _, disk := range []vfs.FS{crashed, mem, mem.CrashClone(vfs.CrashCloneCfg{})} {
					l, err := OpenLog(Options{FS: disk, Dir: "/data/log"})
					if err != nil {
						t.Fatal(err)
					}
					if !has(t, l, "a") {
						t.Error("an acknowledged commit is lost")
					}
					if disk != crashed && waits && !c.close && !(has(t, l, "b") && has(t, l, "c")) {
						t.Error("a commit that has waited is lost")
					}
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

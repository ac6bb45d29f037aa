package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func openDiskSync(t *testing.T) *diskSync {
	d := newDiskSync(vfs.Default)
	if d == nil {
		t.Skip("this kernel has no asynchronous I/O")
	}
	t.Cleanup(d.close)
	return d
}

// Syncs of several files at the same time all end, and well.
func TestDiskSync(t *testing.T) {
	d, dir := openDiskSync(t), t.TempDir()
	var writers sync.WaitGroup
	for w := range 8 {
		f, err := vfs.Default.Create(filepath.Join(dir, strconv.Itoa(w)), walCategory)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		writers.Go(func() {
			for range 5 {
				if _, err := f.Write([]byte("record")); err != nil {
					t.Error(err)
				}
				if err := d.sync(f); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if d.broken {
		t.Error("the kernel does not sync asynchronously")
	}
}

// pipeFile is a file that cannot be synced.
type pipeFile struct {
	vfs.File
	fd    uintptr
	syncs int
}

var errPipe = errors.New("a pipe")

func (p *pipeFile) Fd() uintptr { return p.fd }

func (p *pipeFile) SyncData() error {
	p.syncs++
	return errPipe
}

// What the kernel does not sync asynchronously is synced in the usual way, and with the usual
// outcome.
func TestDiskSyncFallsBack(t *testing.T) {
	d := openDiskSync(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	f := &pipeFile{fd: writer.Fd()}
	for n := 1; n <= 2; n++ {
		if err := d.sync(f); !errors.Is(err, errPipe) || f.syncs != n {
			t.Errorf("%v, after %d syncs", err, f.syncs)
		}
	}
}

// A log on a disk uses it, and a filesystem that is not the system's is asked itself.
func TestLogsSyncAsynchronously(t *testing.T) {
	openDiskSync(t)
	l, err := OpenLog(Options{FS: vfs.Default, Dir: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	if err := put(l, true, "key", "value"); err != nil {
		t.Error(err)
	}
	if d := l.g.disk; d == nil || d.broken {
		t.Errorf("a log on the disk has %+v", d)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if d := newDiskSync(slowFS{vfs.Default}); d != nil {
		d.close()
		t.Error("syncs of another filesystem would not reach it")
	}
}

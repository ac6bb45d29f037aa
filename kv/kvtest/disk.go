package kvtest

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// diskBytes is the size of every disk, as it reports it; what is on it is held in memory and not counted.
const diskBytes = 1 << 40

// ErrDisk is what a broken disk returns.
var ErrDisk = errors.New("input/output error (made by the test)")

// Disk is one server's disk. It outlives the server's processes.
type Disk struct {
	full, broken atomic.Bool
	// syncDelay is the longest time, in nanoseconds, that a sync of a log file takes.
	syncDelay atomic.Int64
	// closing: the server's process is being closed, and nothing takes time.
	closing atomic.Bool

	mu  sync.Mutex
	mem *vfs.MemFS // what is on it, guarded by mu
}

func newDisk() *Disk { return &Disk{mem: vfs.NewCrashableMem()} }

// SetFull makes the disk full, or gives it room again: writes fail with ENOSPC, and the free space it reports is none.
func (d *Disk) SetFull(full bool) { d.full.Store(full) }

// SetBroken makes everything that changes the disk fail with ErrDisk, or mends it.
func (d *Disk) SetBroken(broken bool) { d.broken.Store(broken) }

// SetSyncDelay makes each sync of a log's file take a random time of up to d. Only those, and not while the server is closed: of the
// others some are made by Pebble with a lock held, and in a synctest bubble who waits for a lock keeps time from passing.
func (d *Disk) SetSyncDelay(delay time.Duration) { d.syncDelay.Store(int64(delay)) }

// Mem is the filesystem itself, as the server's process sees it without faults.
func (d *Disk) Mem() *vfs.MemFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mem
}

// mount is the disk for one process of the server.
func (d *Disk) mount() vfs.FS { return &mountedFS{FS: d.Mem(), disk: d} }

// crash makes the disk what a power failure at this moment leaves of it. A process that still runs goes on with the former one.
func (d *Disk) crash(unsyncedPercent int, random *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem = d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: random})
}

// wipe makes the disk empty.
func (d *Disk) wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem = vfs.NewCrashableMem()
}

// err is what an operation that changes the disk fails with at the moment.
func (d *Disk) err(op, name string) error {
	switch {
	case d.broken.Load():
		return &os.PathError{Op: op, Path: name, Err: ErrDisk}
	case d.full.Load():
		return &os.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
	}
	return nil
}

// mountedFS puts the disk's faults before the filesystem.
type mountedFS struct {
	vfs.FS
	disk *Disk
}

var _ vfs.FS = (*mountedFS)(nil)

// Unwrap implements vfs.FS.
func (m *mountedFS) Unwrap() vfs.FS { return m.FS }

// file wraps what an operation opened.
func (m *mountedFS) file(op, name string, open func() (vfs.File, error)) (vfs.File, error) {
	if err := m.disk.err(op, name); err != nil {
		return nil, err
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	return &mountedFile{File: f, disk: m.disk, name: name}, nil
}

func (m *mountedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return m.file("create", name, func() (vfs.File, error) { return m.FS.Create(name, c) })
}

func (m *mountedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return m.file("reuse", newname, func() (vfs.File, error) { return m.FS.ReuseForWrite(oldname, newname, c) })
}

func (m *mountedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return m.file("open", name, func() (vfs.File, error) { return m.FS.OpenReadWrite(name, c, options...) })
}

// OpenDir is for syncing a directory, which takes no room.
func (m *mountedFS) OpenDir(name string) (vfs.File, error) {
	f, err := m.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &mountedFile{File: f, disk: m.disk, name: name}, nil
}

// change does something to names, without faults or not at all.
func (m *mountedFS) change(op, name string, do func() error) error {
	if err := m.disk.err(op, name); err != nil {
		return err
	}
	return do()
}

func (m *mountedFS) Link(oldname, newname string) error {
	return m.change("link", newname, func() error { return m.FS.Link(oldname, newname) })
}

func (m *mountedFS) Rename(oldname, newname string) error {
	return m.change("rename", newname, func() error { return m.FS.Rename(oldname, newname) })
}

func (m *mountedFS) MkdirAll(dir string, perm os.FileMode) error {
	return m.change("mkdir", dir, func() error { return m.FS.MkdirAll(dir, perm) })
}

func (m *mountedFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	usage := vfs.DiskUsage{TotalBytes: diskBytes, AvailBytes: diskBytes}
	if m.disk.full.Load() {
		usage.AvailBytes, usage.UsedBytes = 0, diskBytes
	}
	return usage, nil
}

func (m *mountedFS) Lock(name string) (io.Closer, error) { return m.FS.Lock(name) }

// mountedFile puts the disk's faults before a file that was opened for writing.
type mountedFile struct {
	vfs.File
	disk *Disk
	name string
}

func (f *mountedFile) Write(p []byte) (int, error) {
	if err := f.disk.err("write", f.name); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *mountedFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.disk.err("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, at)
}

func (f *mountedFile) Preallocate(at, length int64) error {
	if err := f.disk.err("preallocate", f.name); err != nil {
		return err
	}
	return f.File.Preallocate(at, length)
}

// syncErr: a sync needs no room, only a disk that works.
func (f *mountedFile) syncErr() error {
	if f.disk.broken.Load() {
		return &os.PathError{Op: "sync", Path: f.name, Err: ErrDisk}
	}
	return nil
}

func (f *mountedFile) Sync() error {
	if err := f.syncErr(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *mountedFile) SyncData() error {
	if d := f.disk.syncDelay.Load(); d > 0 && !f.disk.closing.Load() && strings.HasSuffix(f.name, ".log") {
		time.Sleep(time.Duration(rand.Int64N(d + 1)))
	}
	if err := f.syncErr(); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *mountedFile) SyncTo(length int64) (bool, error) {
	if err := f.syncErr(); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}

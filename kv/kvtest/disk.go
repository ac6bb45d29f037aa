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

// diskBytes is the size of every disk, as it reports it; what is on it is held in memory and not
// counted.
const diskBytes = 1 << 40

// ErrDisk is what a broken disk returns.
var ErrDisk = errors.New("input/output error (made by the test)")

// Disk is one server's disk. It outlives the server's processes.
type Disk struct {
	full, broken atomic.Bool
	// syncLeast and syncMost are between what times, in nanoseconds, a sync of a log file takes.
	syncLeast, syncMost atomic.Int64
	// closing: the server's process is being closed, and nothing takes time.
	closing atomic.Bool
	// reads is what reads of tables wait for; nil if they do not.
	reads atomic.Pointer[chan struct{}]
	// low: it reports no room.
	low atomic.Bool
	// capacity is its size in bytes if that is bounded, and used about what of it is taken.
	capacity, used atomic.Int64
	// written counts the bytes that were written, whatever became of them.
	written atomic.Int64
	// failing counts, by DiskOp, the operations that are still to fail; negative: all of them.
	failing [diskOps]atomic.Int64

	mu struct {
		sync.Mutex
		mem *vfs.MemFS // what is on it
		// random gives the times of syncs.
		random *rand.Rand
		// hold is what syncs of log files wait for; nil if they do not.
		hold chan struct{}
		// paused, stalled: why there is a hold.
		paused, stalled bool
	}
}

// DiskOp is a kind of operation of a disk.
type DiskOp int

// What can be made to fail.
const (
	DiskRead DiskOp = iota
	DiskWrite
	DiskSync
	diskOps
)

func newDisk(random *rand.Rand) *Disk {
	d := &Disk{}
	d.mu.mem, d.mu.random = vfs.NewCrashableMem(), random
	return d
}

// SetFull makes the disk full, or gives it room again: writes fail with ENOSPC, and the free space
// it reports is none.
func (d *Disk) SetFull(full bool) { d.full.Store(full) }

// SetLow makes the disk report that it has no room left, while what is written still fits: as a
// disk does whose reserve is used.
func (d *Disk) SetLow(low bool) { d.low.Store(low) }

// Written is how many bytes have been written to the disk.
func (d *Disk) Written() int64 { return d.written.Load() }

// Fail makes the next n operations of a kind fail with ErrDisk; a negative n all from now on, 0
// none any more.
func (d *Disk) Fail(op DiskOp, n int) { d.failing[op].Store(int64(n)) }

// fails says whether an operation of a kind is one of those that Fail meant.
func (d *Disk) fails(op DiskOp) bool {
	for {
		n := d.failing[op].Load()
		if n == 0 {
			return false
		}
		if n < 0 || d.failing[op].CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// Heal ends all that was done to the disk, but not its contents nor the delay of syncs.
func (d *Disk) Heal() {
	for op := range diskOps {
		d.Fail(op, 0)
	}
	d.SetBroken(false)
	d.SetFull(false)
	d.SetLow(false)
	d.SetStalled(false)
}

// SetStalled stalls syncs of the logs' files from now on, or lets them go on: what a disk does that
// is out of order, or that others use too much. Closing or killing the server ends it.
func (d *Disk) SetStalled(stalled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.stalled = stalled
	d.holdLocked()
}

func (d *Disk) setPaused(paused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.paused = paused
	d.holdLocked()
}

// release ends everything that keeps syncs from ending.
func (d *Disk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.paused, d.mu.stalled = false, false
	d.holdLocked()
}

func (d *Disk) holdLocked() {
	switch hold := d.mu.paused || d.mu.stalled; {
	case hold && d.mu.hold == nil:
		d.mu.hold = make(chan struct{})
	case !hold && d.mu.hold != nil:
		close(d.mu.hold)
		d.mu.hold = nil
	}
}

func (d *Disk) upTo(n int64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.mu.random.Int64N(n + 1))
}

func (d *Disk) held() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.hold
}

// SetBroken makes everything that changes the disk fail with ErrDisk, or mends it.
func (d *Disk) SetBroken(broken bool) { d.broken.Store(broken) }

// SetSyncDelay makes each sync of a log's file take a random time of up to d. Only those, and not
// while the server is closed: of the others some are made by Pebble with a lock held, and in a
// synctest bubble a goroutine that waits for a lock keeps time from passing.
func (d *Disk) SetSyncDelay(delay time.Duration) { d.SetSyncTimes(0, delay) }

// SetSyncTimes is SetSyncDelay with a least time.
func (d *Disk) SetSyncTimes(least, most time.Duration) {
	d.syncLeast.Store(int64(least))
	d.syncMost.Store(int64(most))
}

// Mem is the filesystem itself, as the server's process sees it without faults.
func (d *Disk) Mem() *vfs.MemFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.mem
}

// mount is the disk for one process of the server.
func (d *Disk) mount() vfs.FS { return &mountedFS{FS: d.Mem(), disk: d} }

// crash makes the disk what a power failure at this moment leaves of it. A process that still runs
// goes on with the former one.
func (d *Disk) crash(unsyncedPercent int, random *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.mem = d.mu.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent,
		RNG: random})
}

// wipe makes the disk empty.
func (d *Disk) wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.mem = vfs.NewCrashableMem()
}

// err is what an operation that changes the disk fails with at the moment.
func (d *Disk) err(op, name string) error {
	switch {
	case d.broken.Load(), d.fails(DiskWrite):
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

func (m *mountedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File,
	error) {
	return m.file("reuse", newname,
		func() (vfs.File, error) { return m.FS.ReuseForWrite(oldname, newname, c) })
}

func (m *mountedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, options ...vfs.OpenOption) (
	vfs.File, error) {
	return m.file("open", name,
		func() (vfs.File, error) { return m.FS.OpenReadWrite(name, c, options...) })
}

// Open opens a file for reading.
func (m *mountedFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := m.FS.Open(name, options...)
	if err != nil {
		return nil, err
	}
	return &mountedFile{File: f, disk: m.disk, name: name}, nil
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
	if m.disk.full.Load() || m.disk.low.Load() {
		usage.AvailBytes, usage.UsedBytes = 0, diskBytes
	} else if capacity := m.disk.capacity.Load(); capacity > 0 {
		used := m.disk.count()
		usage = vfs.DiskUsage{TotalBytes: uint64(capacity), UsedBytes: uint64(used),
			AvailBytes: uint64(max(0, capacity-used))}
	}
	return usage, nil
}

func (m *mountedFS) Lock(name string) (io.Closer, error) { return m.FS.Lock(name) }

// mountedFile puts the disk's faults before an open file.
type mountedFile struct {
	vfs.File
	disk *Disk
	name string
}

func (f *mountedFile) readErr() error {
	if f.disk.fails(DiskRead) {
		return &os.PathError{Op: "read", Path: f.name, Err: ErrDisk}
	}
	return nil
}

func (f *mountedFile) Read(p []byte) (int, error) {
	if err := f.readErr(); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *mountedFile) ReadAt(p []byte, at int64) (int, error) {
	if err := f.readErr(); err != nil {
		return 0, err
	}
	f.disk.awaitRead(f.name)
	return f.File.ReadAt(p, at)
}

func (f *mountedFile) Write(p []byte) (int, error) {
	if err := f.disk.err("write", f.name); err != nil {
		return 0, err
	}
	if err := f.disk.take(f.name, len(p)); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *mountedFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.disk.err("write", f.name); err != nil {
		return 0, err
	}
	if err := f.disk.take(f.name, len(p)); err != nil {
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
	if f.disk.broken.Load() || f.disk.fails(DiskSync) {
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
	if !f.disk.closing.Load() && strings.HasSuffix(f.name, ".log") {
		if least, most := f.disk.syncLeast.Load(), f.disk.syncMost.Load(); most > 0 {
			time.Sleep(time.Duration(least) + f.disk.upTo(max(0, most-least)))
		}
		if hold := f.disk.held(); hold != nil {
			<-hold
		}
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

// HoldReads makes reads of tables of data wait, as a disk does that is about to fail, or lets them
// go on. A server cannot be closed while they wait.
func (d *Disk) HoldReads(hold bool) {
	if hold {
		gate := make(chan struct{})
		d.reads.CompareAndSwap(nil, &gate)
		return
	}
	if gate := d.reads.Swap(nil); gate != nil {
		close(*gate)
	}
}

// awaitRead waits if reads of a file are held.
func (d *Disk) awaitRead(name string) {
	if gate := d.reads.Load(); gate != nil && strings.HasSuffix(name, ".sst") {
		<-*gate
	}
}

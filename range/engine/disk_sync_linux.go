package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// diskSync has the kernel sync a file's data and tell when it is done, so that the goroutine that
// waits for it sleeps. In a call of fdatasync it would keep one of Go's few processors until the
// runtime notices, which takes up to 10 ms: on a machine with two of them the sync of a log and
// that of a flush would make everybody wait for the disk.
//
// It is asynchronous I/O of the kernel's own (io_submit), which knows IOCB_CMD_FDSYNC since Linux
// 4.18.
type diskSync struct {
	mu sync.Mutex
	// context is the kernel's handle, done the eventfd that it writes to.
	context uintptr
	done    *os.File
	doneFD  uint32
	// broken: the kernel does not do it. What was submitted has ended.
	broken bool
}

// iocb and ioEvent are the kernel's structures. What has no name is 0 in a sync, or of no interest.
type iocb struct {
	_         [16]byte
	opcode    uint16
	_         [2]byte
	file      uint32
	_         [32]byte
	flags     uint32
	eventFile uint32
}

type ioEvent struct {
	_      [16]byte
	result int64
	_      [8]byte
}

var (
	_ [64]byte = [unsafe.Sizeof(iocb{})]byte{}
	_ [32]byte = [unsafe.Sizeof(ioEvent{})]byte{}
)

const (
	dataSync     = 3 // IOCB_CMD_FDSYNC
	tellByEvent  = 1 // IOCB_FLAG_RESFD
	mostInFlight = 1
)

// newDiskSync makes one for the files of a filesystem; nil if there is nothing to be had but
// fdatasync.
func newDiskSync(fs vfs.FS) *diskSync {
	if fs != vfs.Default {
		return nil // SyncData of its files may be more than it seems
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil
	}
	d := &diskSync{}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, mostInFlight,
		uintptr(unsafe.Pointer(&d.context)), 0); errno != 0 {
		_ = unix.Close(fd)
		return nil
	}
	d.done, d.doneFD = os.NewFile(uintptr(fd), "eventfd"), uint32(fd)
	return d
}

// sync is SyncData of a file.
func (d *diskSync) sync(f vfs.File) error {
	fd := f.Fd()
	if d == nil || fd == vfs.InvalidFd {
		return f.SyncData()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return f.SyncData()
	}
	block := &iocb{opcode: dataSync, file: uint32(fd), flags: tellByEvent, eventFile: d.doneFD}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, d.context, 1,
		uintptr(unsafe.Pointer(&block))); errno != 0 {
		d.broken = true // nothing was submitted
		return f.SyncData()
	}
	var count [8]byte
	if _, err := d.done.Read(count[:]); err != nil {
		d.broken = true
		return errors.Join(fmt.Errorf("waiting for a sync: %w", err), f.SyncData())
	}
	var event ioEvent
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, d.context, 1, 1,
			uintptr(unsafe.Pointer(&event)), 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0 || n != 1:
			d.broken = true
			return fmt.Errorf("asking for the outcome of a sync: %w", errno)
		case event.result < 0:
			return syscall.Errno(-event.result)
		}
		return nil
	}
}

// close gives everything back. No sync may run.
func (d *diskSync) close() {
	if d == nil {
		return
	}
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, d.context, 0, 0)
	_ = d.done.Close()
}

package alarm

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kernelBell is a timer of the kernel. The runtime waits for it as for a connection.
type kernelBell struct {
	file *os.File
	raw  syscall.RawConn // of file
}

func newBell() bell {
	// Too many open files, or a kernel that does not allow it: then the runtime's timers have to
	// do.
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newPlainBell()
	}
	file := os.NewFile(uintptr(fd), "timer")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return newPlainBell()
	}
	return &kernelBell{file, raw}
}

// set implements bell. A timer that cannot be set is closed, so that what waits does not wait for
// it.
func (b *kernelBell) set(d time.Duration) {
	var set error
	err := b.raw.Control(func(fd uintptr) {
		set = unix.TimerfdSettime(int(fd), 0,
			&unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	})
	if err == nil && set != nil {
		b.close()
	}
}

// wait implements bell.
func (b *kernelBell) wait() error {
	var rung [8]byte
	_, err := b.file.Read(rung[:])
	return err
}

// close implements bell.
func (b *kernelBell) close() { _ = b.file.Close() }

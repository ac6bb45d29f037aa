package timer

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kernelWaker is a kernel timer. The runtime waits for it as for a connection.
type kernelWaker struct {
	file *os.File
	raw  syscall.RawConn // of file
}

func newWaker() waker {
	// It fails with too many open files, or if the kernel does not allow it: then the runtime's
	// timers must do.
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newPlainWaker()
	}
	file := os.NewFile(uintptr(fd), "timer")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return newPlainWaker()
	}
	return &kernelWaker{file, raw}
}

// set implements waker. A timer that cannot be set is closed, so that nobody waits for it in vain.
func (b *kernelWaker) set(d time.Duration) {
	var set error
	err := b.raw.Control(func(fd uintptr) {
		set = unix.TimerfdSettime(int(fd), 0,
			&unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	})
	if err == nil && set != nil {
		b.close()
	}
}

// wait implements waker.
func (b *kernelWaker) wait() error {
	var rung [8]byte
	_, err := b.file.Read(rung[:])
	return err
}

// close implements waker.
func (b *kernelWaker) close() { _ = b.file.Close() }

package links

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits for short times with precision, by a timer of the kernel. The zero alarm is ready for
// use. Only one goroutine may use it.
type alarm struct {
	fd   int
	file *os.File
}

// wait waits for a duration. Without a timer of the kernel it may wait longer.
func (a *alarm) wait(d time.Duration) {
	if a.file == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			time.Sleep(d)
			return
		}
		a.fd, a.file = fd, os.NewFile(uintptr(fd), "timer")
	}
	begun := time.Now()
	var rings [8]byte
	err := unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	if err == nil {
		_, err = a.file.Read(rings[:])
	}
	if err != nil {
		time.Sleep(d - time.Since(begun))
	}
}

func (a *alarm) close() {
	if a.file != nil {
		_ = a.file.Close() // the close of a timer loses no data
	}
}

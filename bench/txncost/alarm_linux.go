package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits as exactly as the kernel can. Go's own timers do not: they may be up to a millisecond
// late. It is delivered like an event of the network.
type alarm struct {
	fd   int
	file *os.File // of fd
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "alarm")}, nil
}

// wait returns at the time due.
func (a *alarm) wait(due time.Time) {
	left := time.Until(due)
	if left <= 0 {
		return
	}
	err := unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))},
		nil)
	if err == nil {
		var rung [8]byte
		_, err = a.file.Read(rung[:])
	}
	if err != nil {
		time.Sleep(time.Until(due))
	}
}

func (a *alarm) close() { _ = a.file.Close() }

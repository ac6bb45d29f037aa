package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits as exactly as the kernel can, which the language's own timers do not: what is due
// within a millisecond they leave until that is over. It rings as news from the network comes.
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

// wait returns when it is due.
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

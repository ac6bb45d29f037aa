//go:build unix

package watchdog

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	// name is the process name by which Main recognises a watchdog.
	name = "tidemark-watchdog"
	// ready is the first line of a watchdog: its signal handling is set up.
	ready = "ready\n"
	// lookAgain is the interval at which a watchdog checks the clock while there is a deadline: timers
	// stop in a suspended machine.
	lookAgain = 100 * time.Millisecond
	// lookForRest is the interval at which a watchdog checks whether the group is empty.
	lookForRest = 20 * time.Millisecond
	// saysOverdue is the last line of a watchdog that has ended the command because of the
	// deadline, saysDone the last line otherwise. A watchdog that was killed writes neither.
	saysOverdue = "overdue\n"
	saysDone    = "done\n"
)

// Main runs the watchdog and does not return if this process is a watchdog. Otherwise it does
// nothing. A program that uses Start must call Main before anything else.
func Main() {
	if len(os.Args) != 5 || os.Args[0] != name {
		return
	}
	// Signals to the group, which this process leads, and signals from the terminal are for the
	// command.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGTSTP,
		syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	group := syscall.Getpgrp()
	var numbers [4]int64
	for i, arg := range os.Args[1:] {
		number, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			os.Exit(2)
		}
		numbers[i] = number
	}
	d := &dog{watch: newWatch(time.Duration(numbers[0]), numbers[1]), group: group,
		parents: int(numbers[2])}
	if numbers[3] == 0 {
		d.group = 0 // the command is not in the group
	}
	if _, err := io.WriteString(os.Stdout, ready); err != nil {
		os.Exit(2)
	}
	d.run(os.Stdin)
	last := saysDone
	if d.overdue {
		last = saysOverdue
	}
	// The pipe ends with this process, which the other process notices.
	_, _ = io.WriteString(os.Stdout, last)
	os.Exit(0)
}

// dog is a running watchdog.
type dog struct {
	*watch
	// group is the watched group. If it is 0, only the command is watched.
	group int
	// parents is the group of the parent process.
	parents int
	// command is the process of the command. It is nil before the command was started. On Linux it
	// refers to that process permanently, even if the number of the process is used again.
	command *os.Process
	left    bool
}

// run watches until the command has ended.
func (d *dog) run(told io.Reader) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(told); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		now := Clock()
		if d.do(d.look(now)) {
			return
		}
		limit := d.next(now)
		if d.deadline != Never || d.killAt != Never {
			limit = min(limit, lookAgain)
		}
		if d.gone {
			limit = min(limit, lookForRest)
		}
		timer := time.NewTimer(limit)
		select {
		case line, ok := <-lines:
			timer.Stop()
			if !ok { // the parent process is gone
				d.do(kill)
				return
			}
			pid, a := d.tell(Clock(), line)
			if pid > 0 {
				d.command, _ = os.FindProcess(pid)
			}
			if d.do(a) {
				return
			}
		case <-timer.C:
		}
	}
}

// do executes an action. done reports whether the watchdog has finished.
func (d *dog) do(a action) (done bool) {
	switch a {
	case terminate:
		d.signal(syscall.SIGTERM)
		d.signal(syscall.SIGCONT) // a stopped process has to continue to be able to end
	case kill:
		d.leave()
		d.signal(syscall.SIGKILL)
		return true
	case leave:
		d.leave()
	case finish:
		return true
	}
	// Otherwise the group is empty.
	return d.gone && (d.group == 0 || syscall.Kill(-d.group, 0) == syscall.ESRCH)
}

// leave leaves the group. The number of the group stays reserved, because it is the number of this
// process.
func (d *dog) leave() {
	if !d.left && d.group != 0 {
		d.left = syscall.Setpgid(0, d.parents) == nil
	}
}

// signal sends a signal to the group, and to the command if it has left the group.
func (d *dog) signal(s syscall.Signal) {
	watched := d.command != nil && !d.gone
	switch {
	case d.group == 0 && watched:
		_ = d.command.Signal(s)
	case d.group != 0 && watched:
		signalOutside(d.group, d.command, s)
	}
	if d.group != 0 {
		_ = syscall.Kill(-d.group, s)
	}
}

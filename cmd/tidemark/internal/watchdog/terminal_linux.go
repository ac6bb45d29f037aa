package watchdog

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process, or nil if there is none. Only the
// foreground group of the terminal may read, and gets the signals of Ctrl-C and Ctrl-Z.
type terminal struct {
	file *os.File
	// own is the group of this process. group is the group of the command, and process is the command.
	own, group, process int

	done    chan struct{}
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		// given: the command's group has had the foreground.
		given bool
	}
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: syscall.Getpgrp(), done: make(chan struct{})}
}

// ownGroup reports whether a command can have a group of its own.
func (*terminal) ownGroup() bool { return true }

// foreground returns the foreground group, or 0 if it cannot be determined.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// begin gives the foreground to the command's group before the command begins, if the command needs
// it.
func (t *terminal) begin(group int, interactive bool) {
	if t == nil {
		return
	}
	t.group = group
	if interactive && t.foreground() == t.own {
		t.give()
	}
}

func (t *terminal) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set(t.group) == nil {
		t.mu.given = true
	}
}

// set makes a group the foreground group. The system stops a background process that calls this,
// unless the thread blocks the signal.
func (t *terminal) set(group int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		return err
	}
	err := unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

// take takes the foreground back, if the command's group has it.
func (t *terminal) take() {
	if t.foreground() == t.group {
		_ = t.set(t.own)
	}
}

// follow makes this process stop and continue together with the command from now on.
func (t *terminal) follow(process int) {
	if t == nil {
		return
	}
	t.process = process
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGCONT)
	t.running.Go(func() {
		runtime.LockOSThread() // stop stops this thread
		defer runtime.UnlockOSThread()
		defer signal.Stop(signals)
		for {
			// The check comes before the first signal too, because the command may have stopped already.
			if stopped := t.stopped(); stopped != 0 {
				t.stop(stopped)
			}
			select {
			case s := <-signals:
				if s == syscall.SIGCONT {
					t.goOn()
				}
			case <-t.done:
				return
			}
		}
	})
}

// stopped returns the signal that has stopped the command since the last call, or 0. It does not
// wait for the end of the command, because another goroutine does.
func (t *terminal) stopped() syscall.Signal {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, t.process, &info, unix.WSTOPPED|unix.WNOHANG, nil)
	if err != nil || info.Signo == 0 {
		return 0
	}
	return syscall.Signal(*(*int32)(unsafe.Add(unsafe.Pointer(&info), statusOffset)))
}

// statusOffset is the offset of si_status in siginfo_t: behind three numbers, padding, and two
// more.
const statusOffset = (12+unsafe.Sizeof(uintptr(0))-1)/unsafe.Sizeof(uintptr(0))*
	unsafe.Sizeof(uintptr(0)) + 8

// stop handles a command that a signal has stopped.
func (t *terminal) stop(by syscall.Signal) {
	wants := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	switch foreground := t.foreground(); {
	case wants && foreground == t.own:
		t.give()
		_ = syscall.Kill(-t.group, syscall.SIGCONT)
	case wants && foreground == t.group: // it came to the foreground after the stop
		_ = syscall.Kill(-t.group, syscall.SIGCONT)
	case wants, by == syscall.SIGTSTP:
		// The job stops as a whole, as if all processes were in one group. If no shell could continue
		// this process, the system does not stop it, and the command continues at once. (SIGTSTP is never
		// handled here: Go's runtime would not restore its default.)
		t.take()
		stopJob()
		t.goOn()
	}
}

// stopJob stops this process and all others in its group, once, and returns when they continue. The
// calling goroutine is locked to its thread.
//
// The signal to the group stops this process at some time, but this thread may run on before that.
// So the thread also gets its own signal, which it blocks until the group's signal was sent. If the
// process has stopped and continued by then, SIGCONT has discarded the thread's signal, and the
// thread does not stop twice. Otherwise the thread stops with the process as soon as it unblocks
// the signal.
func stopJob() {
	var block, before unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTSTP - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before) != nil {
		return
	}
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}

// goOn continues the command after this process was stopped, in the foreground if this process is
// in the foreground.
func (t *terminal) goOn() {
	t.mu.Lock()
	given := t.mu.given
	t.mu.Unlock()
	if given && t.foreground() == t.own {
		t.give()
	}
	_ = syscall.Kill(-t.group, syscall.SIGCONT)
}

// end takes the terminal back from a command that has ended.
func (t *terminal) end() {
	if t == nil {
		return
	}
	close(t.done)
	t.running.Wait()
	t.take()
}

// interrupted passes on a signal by which the terminal ended the command: in a single group, the
// other processes in the group of this process, such as a script, would have received it too.
func (t *terminal) interrupted(by syscall.Signal) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.given && by == syscall.SIGINT && t.foreground() == t.own {
		_ = syscall.Kill(0, by)
	}
}

func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

package watchdog

import "syscall"

// endsWithThread makes the kernel kill a command when the thread that has started the command ends:
// at the latest when this process ends, in any way.
func endsWithThread() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

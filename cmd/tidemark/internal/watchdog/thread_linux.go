package watchdog

import "syscall"

// endsWithThread has the kernel kill a command when the thread ends that has started it: at the
// latest with this process, however that ends.
func endsWithThread() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

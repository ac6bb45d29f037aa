package process

import "syscall"

// Attributes gives the child its own process group, so that Ctrl-C reaches only the parent, which
// ends its children in order. On Linux the kernel kills the child when the thread that started it
// ends.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

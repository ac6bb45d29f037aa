package process

import "syscall"

// Attributes gives the child a process group of its own (so that Ctrl-C reaches the parent only,
// which ends its children in order) and has the kernel kill it when its parent's thread ends.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

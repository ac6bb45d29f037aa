package main

import "syscall"

// attributes gives the harness a process group of its own, so that Ctrl-C reaches the supervisor
// only, and has it end with the supervisor.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

//go:build !linux

package process

import "syscall"

// attributes gives the child a process group of its own, so that Ctrl-C reaches the parent only.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

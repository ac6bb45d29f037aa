//go:build !linux

package process

import "syscall"

// Attributes gives the child a process group of its own, so that Ctrl-C reaches the parent only.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

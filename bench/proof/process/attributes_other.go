//go:build !linux

package process

import "syscall"

// Attributes gives the child its own process group, so that Ctrl-C reaches only the parent.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

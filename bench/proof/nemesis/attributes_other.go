//go:build !linux

package main

import "syscall"

// attributes gives the harness a process group of its own, so that Ctrl-C reaches the supervisor
// only.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

//go:build unix && !linux

package watchdog

import "syscall"

// endsWithThread returns nil: this system does not end a command with the process that started it.
func endsWithThread() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

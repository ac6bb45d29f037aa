//go:build unix

package serving

import "syscall"

// RestrictFiles keeps what this process creates, data and logs of servers above all, from users
// other than its own and its group: files are 0640 and directories 0750 at most. What exists is
// left alone.
func RestrictFiles() { syscall.Umask(syscall.Umask(0o777) | 0o027) }

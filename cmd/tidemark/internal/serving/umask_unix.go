//go:build unix

package serving

import "syscall"

// RestrictFiles protects the files that this process creates, such as data and logs of servers:
// only its user and its group can use them. Files are 0640 and directories 0750 at most. Existing
// files are not changed.
func RestrictFiles() { syscall.Umask(syscall.Umask(0o777) | 0o027) }

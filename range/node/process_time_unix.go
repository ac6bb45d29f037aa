//go:build unix

package node

import (
	"syscall"
	"time"
)

// processTime is the processor time that this process has used, user and system together; 0 if the
// system does not provide it.
func processTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

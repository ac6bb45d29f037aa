//go:build unix

package limit

import "syscall"

// involuntarySwitches is how many times a thread of this process was interrupted for another one to
// run, since the process began; 0 if it is not known.
func involuntarySwitches() int64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return int64(usage.Nivcsw)
}

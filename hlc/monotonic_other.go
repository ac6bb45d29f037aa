//go:build !linux

package hlc

import "time"

// systemMonotonic is Go's monotonic clock. Whether that goes on while the machine is suspended depends on the system.
func systemMonotonic() Monotonic {
	epoch := time.Now()
	return func() int64 { return int64(time.Since(epoch)) }
}

//go:build !linux

package hlc

// systemMonotonic is Go's monotonic clock. It depends on the system whether it runs on while the
// machine is suspended.
func systemMonotonic() Monotonic { return AwakeMonotonic() }

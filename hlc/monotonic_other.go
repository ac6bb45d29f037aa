//go:build !linux

package hlc

// systemMonotonic is Go's monotonic clock. Whether that goes on while the machine is suspended
// depends on the system.
func systemMonotonic() Monotonic { return AwakeMonotonic() }

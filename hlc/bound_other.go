//go:build !linux

package hlc

// readKernelClock cannot ask: only Linux has adjtimex in the standard library.
func readKernelClock() (kernelReading, bool) { return kernelReading{}, false }

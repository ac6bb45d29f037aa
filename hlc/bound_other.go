//go:build !linux

package hlc

// readKernelClock has nobody to ask: only Linux has adjtimex in the standard library.
func readKernelClock() (kernelReading, bool) { return kernelReading{}, false }

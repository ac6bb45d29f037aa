//go:build !linux

package alarm

func newBell() bell { return newPlainBell() }

//go:build !linux

package timer

func newWaker() waker { return newPlainWaker() }

//go:build !linux

package links

import "time"

// alarm waits for short times, with the precision of Go's timers.
type alarm struct{}

func (*alarm) wait(d time.Duration) { time.Sleep(d) }

func (*alarm) close() {}

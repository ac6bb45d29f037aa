//go:build !linux

package links

import "time"

// alarm waits for short times, as exactly as timers are.
type alarm struct{}

func (*alarm) wait(d time.Duration) { time.Sleep(d) }

func (*alarm) close() {}

//go:build !linux

package main

import "time"

// alarm waits with Go's timers.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

// wait returns at the time due, or up to a millisecond later.
func (*alarm) wait(due time.Time) { time.Sleep(time.Until(due)) }

func (*alarm) close() {}

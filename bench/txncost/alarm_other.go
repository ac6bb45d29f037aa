//go:build !linux

package main

import "time"

// alarm waits.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

// wait returns when it is due, or up to a millisecond later.
func (*alarm) wait(due time.Time) { time.Sleep(time.Until(due)) }

func (*alarm) close() {}

//go:build !linux

package main

// runApart does nothing: processes share all processors.
func runApart(bool) error { return nil }

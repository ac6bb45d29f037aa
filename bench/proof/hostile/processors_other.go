//go:build !linux

package main

// runApart does nothing: attackers, servers and clients share all processors.
func runApart(bool) error { return nil }

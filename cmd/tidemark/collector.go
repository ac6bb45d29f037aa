package main

import (
	"os"
	"runtime/debug"
)

// serverGCPercent lets a server's heap grow further before it is collected than Go's default of 100. Most of a server's
// memory is memtables and block cache, which are not on the heap; what is on it is small and short-lived, and collecting it
// rarely costs little memory and saves processor time.
const serverGCPercent = 400

// tuneCollector sets the garbage collector for a server, unless the operator has: see GOGC in the documentation of Go.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(serverGCPercent)
	}
}

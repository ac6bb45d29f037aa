// Package progress shows how far long work has come, on stderr: a bar when that is a terminal,
// otherwise a line now and then, so that a log file stays short. It starts no goroutine: the work
// calls Set as it goes.
package progress

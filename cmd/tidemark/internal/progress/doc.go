// Package progress shows the progress of long work on stderr: as a bar on a terminal, and otherwise
// as a line every few seconds, so that a log file stays short. It starts no goroutine: the work
// calls Set.
package progress

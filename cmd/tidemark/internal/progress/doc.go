// Package progress shows the progress of long work on standard error. On a terminal it shows a bar.
// Otherwise it prints a line every few seconds, so that a log file stays short. It starts no
// goroutine: the work calls Set.
package progress

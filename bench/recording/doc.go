// Package main records what a user sees when a server is killed under load: make recording. The
// program starts three servers, writes with many clients, kills the server that leads most
// partitions with kill -9, starts the server again, and reads back every acknowledged write. The
// recording is an SVG whose lines appear at the times at which they were printed
// (docs/images/kill-9.svg).
//
// Whatever the recording shows was measured: the program has no figures of its own. The program
// fails, and writes nothing, if an acknowledged write is lost.
package main

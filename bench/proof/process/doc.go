// Package process starts, watches and ends the server processes that comparisons and fault tests
// are made of.
//
// A Process is one child: its output goes to a log file, its processor time is read from /proc, and
// its end is seen through Done. A child never outlives its parent: on Linux the kernel kills it
// when the goroutine that started it (and that is locked to its thread for the purpose) goes away,
// be it by a panic or by kill -9.
//
// Everything listens on 127.0.0.1. Ports come from below the kernel's range for outgoing
// connections: a server that was killed must find its port free when it comes back, and an outgoing
// connection would otherwise be able to take it.
//
// The package knows nothing of Tidemark and imports only the standard library.
package process

// Package process starts, watches and ends server processes for comparisons and fault tests.
//
// A Process is one child. Its output goes to a log file. Its processor time is read from /proc.
// Done is closed when the child has ended. A child never outlives its parent: on Linux the kernel
// kills the child when the thread that started it ends, even after a panic or kill -9. A goroutine
// is locked to that thread for the life of the child.
//
// All servers listen on 127.0.0.1. Their ports lie below the kernel's range for outgoing
// connections. Otherwise an outgoing connection could take the port of a server that was killed,
// before the server starts again.
//
// The package knows nothing of Tidemark and imports only the standard library.
package process

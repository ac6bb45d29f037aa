// Package nonblock reads from and writes to TCP sockets by system calls of which Go's scheduler is
// not told.
//
// A system call of package syscall may block, so the scheduler is told when it begins and ends. In
// an idle process that wakes the thread which watches for long system calls (sysmon), and sysmon
// polls several times before it sleeps again: a small message that arrives at an idle process costs
// nearly twice as much because of it. The sockets of package net do not block: a read or write
// transfers what is possible, and returns. There is nothing to watch for, as long as little is
// copied; larger writes are left to package net.
//
// This works on Linux only, and without the race detector, which learns from package syscall that
// data that is read was written before. Elsewhere the connections are those of package net.
//
// The package imports nothing of this module.
package nonblock

// Package nonblock reads from and writes to TCP sockets by system calls that Go's scheduler does
// not hear of.
//
// A system call of package syscall may take long, so the scheduler is told when it begins and ends.
// If the process was idle, that wakes the thread which watches for calls that take long (sysmon),
// and it looks several times before it sleeps again: a small message that arrives at an idle
// process costs nearly twice as much for it. The sockets of package net do not block: a read or
// write of one takes what there is, or has room, and ends. There is nothing to watch for, as long
// as little is copied; larger writes are left to package net.
//
// Only Linux has it, and without the race detector, which learns from package syscall that what is
// read was written before. Elsewhere the connections are those of package net.
//
// It imports nothing of this module.
package nonblock

// Package timer calls functions when their time has come, as exactly as can be had.
//
// The runtime's own timers are not exact in a process that has little to do: it waits for the
// network with a timeout in whole milliseconds, and at least one, so what is due before that is
// over is late. A commit that waits for clocks that are a few hundred microseconds apart would
// mostly wait for that. On Linux a timer of the kernel (timerfd_create(2)) fires here besides, as
// news from the network does. The runtime's timers fire in any case: where no other can be had, and
// in a process that never runs out of work, which looks at them often and at the network seldom.
//
// One kernel timer and one goroutine serve all that waits in one Timers.
package timer

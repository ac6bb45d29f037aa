// Package timer calls functions at given times, as exactly as possible.
//
// The runtime's own timers are inexact in a process that has little to do: it waits for the network
// with a timeout in whole milliseconds, at least one, so a timer that is due earlier fires late. A
// commit that waits for clocks that are a few hundred microseconds apart would mostly wait for
// that. On Linux this package also uses a kernel timer (timerfd_create(2)), which wakes the runtime
// like network traffic. The runtime's timers fire in any case: where no kernel timer can be had,
// and in a busy process, which checks its timers often and the network seldom.
//
// One kernel timer and one goroutine serve all timers of one Timers.
package timer

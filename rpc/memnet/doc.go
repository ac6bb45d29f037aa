// Package memnet is a network in memory, for running a whole cluster inside one test: listeners and
// connections that behave like TCP's, between hosts that have names, over links that can be slow or
// cut.
//
// A host is the part of an address before the port; it exists by being named. A link is a direction
// between two hosts. What can happen to a link:
//
//   - latency: bytes become readable that much later, in order;
//   - a cut that stalls: nothing gets through, neither bytes nor the end of a connection, and
//     neither end hears of it; when the link is healed, everything that was written arrives. This
//     is what lost packets look like;
//   - a cut that breaks: connections between the hosts are reset, and new ones are refused.
//
// One direction can be cut without the other. Dialling needs both: it waits for a stalled link
// until its context ends.
//
// Everything blocks on channels and conditions made by the calling goroutines, and waits with
// timers: so inside a testing/synctest bubble a Network made there runs in virtual time. Nothing is
// random. There is no goroutine but short-lived timers'.
//
// INVARIANT: a connection buffers at most bufferBytes in each direction; then its writer waits.
//
// Locks: Network.mu before pair.mu. Imports the standard library only.
package memnet

// Package memnet is a network in memory, for running a whole cluster inside one test: listeners and
// connections that behave like TCP's, between named hosts, over links that can be slow or cut.
//
// A host is the part of an address before the port; it need not be declared. A link is a direction
// between two hosts. A link may have:
//
//   - latency: bytes become readable that much later, in order;
//   - a cut that stalls: nothing gets through, neither bytes nor the end of a connection, and
//     neither end notices; when the link is healed, everything that was written arrives. This
//     is the effect of lost packets;
//   - a cut that breaks: connections between the hosts are reset, and new ones are refused.
//
// One direction can be cut without the other. Dialling needs both: it waits for a stalled link
// until its context ends.
//
// All blocking is on channels, conditions and timers made by the calling goroutines, so a Network
// made inside a testing/synctest bubble runs in virtual time. Nothing is random. The only
// goroutines are those of timers.
//
// INVARIANT: a connection buffers at most bufferBytes in each direction; then its writer waits.
//
// Locks: Network.mu before pair.mu. Imports the standard library only.
package memnet

// Package limit bounds what clients take of a server: the memory of their requests (RequestMemory),
// of responses that they have not read (ResponseBudget) and of messages that are still being
// received (RecvBudget), the connections (NewListener), and processor time (ConnThrottle). Clients,
// by which are meant principals, share all of it by package quota, so that no client takes what
// others need.
//
// # Processor time
//
// Who is charged: the client at the other side of a connection, by its address, over all of its
// connections. A call that one server passes on for a client is charged to that client. Servers of
// the cluster are charged for nothing else.
//
// What is charged, by fixed costs (throttle.go): 0.3 ms for a connection, 10 us for a message, 5 us
// for a request, 0.15 us for each part of one, 5 ns for a byte, or 50 ns on a connection of gRPC.
// Work that follows from a request, such as a write to disk, is not charged.
//
// When it counts (quota.CPULimiter):
//
//   - Before a client's first answer it gets one fiftieth of the processors: on each, 66
//     connections in a second, after 6 at once. The first answer ends that, for as long as the
//     client is not away for ten minutes.
//   - While goroutines wait for processors for more than 4 ms, and several clients are active, each
//     gets the same share of the processors at most: half of them, and within 0.25 s as little as
//     one part in 32, if nothing more helps. Some 11 s after processors were short last, the share
//     is whole again. A client that takes less than its share notices nothing.
//   - Otherwise it does not count. One client alone may use all processors.
//
// Penalties count at all times: 10 ms of processor time for a connection that ends without an
// answer, 2 ms for a call of gRPC that ends before its message has come or is refused to its user,
// 20 ns for each byte of incomplete messages of a connection that has 256 KiB of them, and 16 times
// its cost for a message of more than 8,192 parts. A client that does what a server is there for
// comes nowhere near the one second for each processor and second that penalties may be.
//
// What happens to a client that is over: 0.1 s is free. Then its connections are not read for as
// long as it takes to make up for what it owes, up to 2 s at a time and 10 s in all, and the kernel
// makes the client wait (tidemark_rpc_throttle_seconds_total). No request is refused for that, nor
// what has been read dropped, unless the connection is closed. Only a further connection of a
// client that has 64 of them and owes more than 1 s is closed.
//
// Nor may a client keep others from a processor for long at a time. The reader of a connection lets
// others go first every 0.25 ms, between the slices of a large message as well (decode_slices.go in
// package rpc), and rests for 1 ms if others have waited.
//
// # Invariants
//
//   - What is taken is given back once: when it was sent, when its call or connection is over, or
//     at the latest when nothing refers to it any more.
//   - Servers of the cluster take nothing, but for what they pass on for clients.
//
// Each type owns its state and its lock. RecvBudget.mu is not held while a connection reads, writes
// or is closed; under it only package quota's locks are taken. A Credit belongs to one stream and
// has no lock: the stream's holds.
//
// The package knows neither requests nor what a server does with them. It imports authn, quota,
// nonblock, wire, metric and range/admission.
package limit

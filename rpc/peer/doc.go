// Package peer carries the Raft messages and snapshots of all groups between servers: a Transport
// has one connection for each pair of hosts and Class, on which the messages of all groups go
// together, and each snapshot travels on a gRPC stream of its own.
//
// # Invariants
//
//   - A connection or stream names both hosts and the cluster, and is refused before its first
//     message if one of them is another.
//   - What waits to be sent is bounded in bytes, for each host and for all together. What does not
//     fit is dropped, and Handler.HandleUnreachable says so: Raft sends again.
//   - No lock is held over sending, receiving or a method of the Handler. Lock order: a link's lock
//     before the lock of its stream's outbox; Transport.mu is taken alone or before a link's.
//   - Nothing outlives Close.
//
// Messages are taken from whom a server's PeerPolicy (package authn) has let in; this package
// trusts them. It imports client for its Dialer, outbox, transport, wire, metric and
// range/admission.
package peer

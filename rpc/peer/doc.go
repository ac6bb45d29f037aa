// Package peer carries the Raft messages and snapshots of all groups between servers: a Transport
// has one connection for each pair of hosts and Class, which the messages of all groups share, and
// each snapshot travels on a gRPC stream of its own.
//
// # Invariants
//
//   - A connection or stream names both hosts and the cluster, and is refused before its first
//     message if one of them is another.
//   - Messages that wait to be sent are bounded in bytes, for each host and for all together.
//     Messages that do not fit are dropped, and Handler.HandleUnreachable says so: Raft sends
//     again.
//   - No lock is held over sending, receiving or a method of the Handler. Lock order: a link's lock
//     before the lock of its stream's outbox; Transport.mu is taken alone or before a link's.
//   - Nothing outlives Close.
//
// A server's PeerPolicy (package authn) decides which peers may connect; this package trusts them.
// It imports client for its Dialer, outbox, transport, wire, metric and range/admission.
package peer

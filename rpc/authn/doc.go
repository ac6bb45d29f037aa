// Package authn tells who is at the other side of a connection: a server of the cluster, by its
// certificate or the cluster's secret (PeerPolicy, TLSFiles), or else the principal that a server
// shares its memory, connections and processors by (Principal), which other servers name when they
// pass calls on (Forwarded).
//
// Users and what they may do are no subject here: see package access.
//
// # Invariants
//
//   - What only servers ask is answered to nobody that is not known as a server (PeerPolicy).
//   - Once PeerPolicy.Close has returned, what unauthenticated openers had open has ended or is
//     told to, and nothing of theirs is admitted.
//
// A PeerPolicy and a TLSFiles own their state and its locks, under which they call nothing but
// what ends a connection, and read files.
package authn

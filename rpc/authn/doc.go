// Package authn identifies the other side of a connection. It is a server of the cluster,
// recognized by its certificate or the cluster's secret (PeerPolicy, TLSFiles); or else it is a
// principal (Principal), among which a server shares its memory, connections and processors. A
// server that passes a client's call on names the client's principal (Forwarded).
//
// Users and their permissions are the subject of package access.
//
// # Invariants
//
//   - Requests that are for servers only are refused to all that are not recognized as a server
//     (PeerPolicy).
//   - Once PeerPolicy.Close has returned, the connections and streams of unauthenticated openers
//     have ended or are about to, and no further ones are admitted.
//
// A PeerPolicy and a TLSFiles own their state and its locks. Under a lock they only end
// connections, and read files.
package authn

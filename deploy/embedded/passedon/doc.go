// Package passedon identifies the client of a call that another server forwards (Clients). A server
// without a part of the coordination store forwards calls of the etcd API to a member of the core,
// and servers forward administration to the core's leader.
//
// The call identifies the client by the token of the call, or by the forwarding server's knowledge
// of the client's connection. The receiver accepts the latter only if the forwarding server has
// proved to be a server. If a caller claims to forward a call without such a proof, its certificate
// names no user, because the certificate is not the client's.
//
// Clients has no mutable state, and needs no lock.
package passedon

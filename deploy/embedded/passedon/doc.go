// Package passedon tells servers who the client of a call is that another server passes on
// (Clients). A server without a part of the coordination store passes calls of the etcd API on to a
// member of the core, and servers pass administration on to the core's leader.
//
// The call says who the client is: by the token that came with the call, or by what the server that
// passes on knows of the client's connection. The receiver believes the latter only of callers that
// have proved to be servers. A caller that says that it passes a call on, and has proved nothing,
// is no user by its certificate: that certificate is not the client's.
//
// Clients has no state that changes, and needs no lock.
package passedon

// Package clusterauth decides which client may call which method of the service Cluster (Judge).
// While authentication is enabled, methods that change something are for administrators: users with
// the role root, authenticated as in the etcd API. Methods about one keyspace are for users with
// rights for that keyspace.
//
// A member of the core decides by its part of the coordination store, whether it leads or forwards
// the call. Rights for keyspaces are checked by the member that leads. A server that is not a
// member forwards the token of the call, or the name of the certificate, and the member that
// receives the call decides.
//
// A Judge has no state, and needs no lock.
package clusterauth

// Package clusterauth judges which client may call which method of the service Cluster (Judge).
// While authentication is enabled, the methods that change something are for administrators: users
// with the role root, who are known as in the etcd API. Methods about one keyspace are for users
// with rights for that keyspace.
//
// A member of the core judges by its part of the coordination store, whether it leads or passes the
// call on. Whether a user has rights for a keyspace is judged by the member that leads. A server
// that is no member passes on the token that came with the call, or the name of the certificate,
// and the member that gets the call judges.
//
// A Judge has no state, and needs no lock.
package clusterauth

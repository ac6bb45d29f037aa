// Package backend is the interface between the etcd API and the store of its keys.
//
// The services of the API call a Store and a Cluster, and nothing else. Store is composed of one
// interface for each concept of etcd: keys with revisions (KV), leases, watches, users and roles,
// this member's copy (Replica), and imports. The store of the core (placement/store) implements all
// of them. Another store can implement the same interfaces, and use the tests of package etcdapi,
// which depend on nothing else.
//
// A Backend adds what every service does with both: the header of an answer, and the wait until
// this member is up to date.
package backend

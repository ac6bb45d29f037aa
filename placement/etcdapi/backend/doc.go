// Package backend is the seam between the etcd API and what keeps its keys.
//
// The services of the API call a Store and a Cluster, and nothing else. Store is made of one
// interface for each thing that etcd has: keys with revisions (KV), leases, watches, users and
// roles, the copy that this member has (Replica), and imports. The store of the core
// (placement/store) implements all of them. A store of another kind implements the same interfaces,
// and passes the tests of package etcdapi, which know only these.
//
// A Backend adds what every service does with both: the header of an answer, and the wait until
// this member is up to date.
package backend

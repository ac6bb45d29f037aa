// Package etcdfile writes a store as a database file of etcd, the content of etcd's snapshots: a
// bbolt file with one bucket for the history of the keys, one for leases, and others. `etcdutl
// snapshot status` and `restore` take it, and an etcd that is restored from it has the same keys,
// revisions, history, leases and compaction.
//
// A bbolt file is made on disk, so that a large store takes no memory. Its writer creates it in a
// directory that it is given, and removes it.
//
// Users and roles are not in it, and nor are members: a restored cluster has members of its own.
package etcdfile

// Package etcdfile writes a store as a database file of etcd, and reads etcd's snapshots.
//
// Such a file, the content of a snapshot, is a bbolt file with one bucket for the history of the
// keys, one for leases, and others. `etcdutl snapshot status` and `restore` accept files written
// here, and an etcd restored from one has the same keys, revisions, history, leases and compaction.
// The newest revision always has a change, if need be one without a key. The file is made on disk,
// so that a large store takes no memory. It is created in a given directory, and the writer of the
// file removes it.
//
// From a snapshot only the state at its newest revision is read: the newest version of each key,
// and the leases (File). The file is read page by page and nothing in it is trusted, so that a
// damaged one causes errors. Its keys are held in memory, but no values.
//
// The file contains users and roles, with hashes of passwords, as etcd stores them. The roles'
// rights to keyspaces are in a bucket of their own, which etcd keeps and does not read. Members are
// not written: a restored cluster has members of its own.
package etcdfile

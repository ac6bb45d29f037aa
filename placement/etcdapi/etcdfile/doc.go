// Package etcdfile writes a store as a database file of etcd, and reads etcd's snapshots.
//
// Such a file, the content of a snapshot, is a bbolt file with one bucket for the history of the
// keys, one for leases, and others. `etcdutl snapshot status` and `restore` take one that is
// written here, and an etcd that is restored from it has the same keys, revisions, history, leases
// and compaction. The newest revision is always that of a change, if need be one without a key. It
// is made on disk, so that a large store takes no memory. Its writer creates it in a directory that
// it is given, and removes it.
//
// Of a snapshot that is read the state at its newest revision counts: the newest version of each
// key, and the leases (File). The file is read page by page and nothing in it is believed, so that
// a damaged one gives errors. Its keys are held in memory, and no values.
//
// Users and roles are in it, with hashes of passwords, as etcd has them. What roles may do with
// keyspaces is in a bucket of its own, which etcd keeps and does not read. Members are not written:
// a restored cluster has members of its own.
package etcdfile

// Package etcdapi serves the etcd v3 API from a store: KV, Lease, Cluster, Maintenance and Health,
// in etcd's own protocol buffers, so that clients of etcd work unchanged. It translates and does
// nothing else. Whatever a client can tell apart is as in etcd 3.6: fields, revisions of headers,
// error codes and their texts.
//
// # How a call goes
//
// Register hands the services to a gRPC server. Each call first passes the guard (guard.go), which
// is what etcd has as interceptors: the client's API version, its demand for a leader, and what a
// learner does not answer. Requests are checked before anything is done for them (check.go),
// translated to a command (translate.go), executed by the Store, and its result is translated back.
// Any member answers: what writes nothing is read on this member, after it has made sure that it is
// up to date unless the request is serializable; commands go through Store.Execute, which forwards
// them.
//
// # Where it differs from etcd
//
//   - A transaction that both puts a key and deletes it is always refused as one with a duplicate
//     key. etcd overlooks some of these: where a deletion of all keys from one on is in the same
//     list as a put, and where a nested transaction deletes what one before it puts.
//   - Pairs that are equal in what they are ordered by stay in the order of their keys. In etcd
//     their order is undefined.
//   - Ranges of keys only tell the leases of the keys, as etcd 3.6 does. etcd 3.7 does not, unless
//     the keys are ordered by value.
//   - Compaction at revision 0 does nothing, however often it is asked for before the first
//     compaction.
//   - A stream of a range that names a target of order and no order is in the order of the keys.
//   - A snapshot (etcdfile) has no members, users and roles, and its size is not the database's.
//   - Sums of the history are of this database's own making, and none is kept of a revision that
//     was compacted.
//   - What one command may read or delete is bounded (store.Config.MaxTouched), and so are how many
//     operations it has in all (store.MaxOperations) and what a reading may answer with
//     (store.MaxAnswerBytes). The error is ResourceExhausted and says so.
//
// # Goroutines
//
// A stream for which the client demands a leader has one that watches for it, and a stream of lease
// renewals one that receives; both end with the stream.
//
// The package imports rpctypes for the errors, and the store; nothing above it.
package etcdapi

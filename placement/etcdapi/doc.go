// Package etcdapi serves the etcd v3 API from a store: KV, Watch, Lease, Cluster, Maintenance,
// Auth, Lock, Election and Health, in etcd's own protocol buffers, so that clients of etcd work
// unchanged. It only translates. Everything that a client can observe is as in etcd 3.6: fields,
// revisions of headers, error codes and their texts.
//
// # How a call goes
//
// Register hands the services to a gRPC server. Each call first passes the guard (guard.go), which
// does the work of etcd's interceptors: it checks the client's API version, its demand for a
// leader, and whether a learner answers. A request is checked and translated to a command
// (translate), executed by the store (backend), and the result is translated back. Any member
// answers. A call that writes nothing reads on this member, after the member has made sure that it
// is up to date unless the request is serializable; a command goes through Store.Execute, which
// forwards it.
//
// # Packages
//
// Package backend is the interface to the store, and all that the services know of it. Package
// authorize determines who calls and what the client may do, translate converts the messages, and
// watches, lockqueue (Lock and Election) and users (Auth) are services of their own. The other
// services are here, a file each: KV, Lease, Cluster, Maintenance, Health, and those that etcd does
// not have. Package gateway serves all of them as JSON; etcdfile reads and writes etcd's snapshots.
//
// # Users
//
// A call is made by a user. Package authority decides what the user may do: here before anything is
// done, by the users and roles that this member knows, and for commands again when they are applied
// (authorize). This member refuses nothing before it is up to date, and lists leases and alarms as
// of then. While authentication is enabled, as far as this member knows, it also renews no lease
// and begins no watch before it is up to date, because both last long after they were permitted.
// Calls about this member alone (Status, Hash, HashKV, Snapshot, MoveLeader) are permitted by what
// this member knows, so that they need no leader. The guard decides about watches, so the Watch
// service gets no request for keys that its client may not read (permit_watch.go).
//
// # Where it differs from etcd
//
//   - A transaction that both puts a key and deletes it is always refused as one with a duplicate
//     key. etcd overlooks some of these: where a deletion of all keys from one on is in the same
//     list as a put, and where a nested transaction deletes what one before it puts.
//
//   - Pairs that are equal in what they are ordered by stay in the order of their keys. In etcd
//     their order is undefined.
//
//   - Ranges of keys only tell the leases of the keys, as etcd 3.6 does. etcd 3.7 does not, unless
//     the keys are ordered by value.
//
//   - Compaction at revision 0 does nothing, however often it is asked for before the first
//     compaction.
//
//   - A stream of a range that names a target of order and no order is in the order of the keys.
//
//   - An alarm that a member has raised because it has no room ends when it has again. One of a
//     type that etcd does not know is refused, and there can be 256.
//
//   - A snapshot (etcdfile) has no members, and its size is not the database's.
//
//   - Sums of the history are of this database's own making, and none is kept of a revision that
//     was compacted.
//
//   - Whether a range may be read that ends at or below its first key, and has no keys, depends on
//     whether that key may. In etcd it depends on the order in which permissions were granted, too.
//
//   - Requests that add users or change passwords are refused before the password is hashed. So of
//     a request that may not be made, and whose password is too long, the error is the former's.
//
//   - A hash of a password whose cost is far above that of the server is that of no password. A
//     user with a name of more than 4 KiB cannot log in with a password.
//
//   - Leases lists for a user the leases that have keys all of which the user may read, and all
//     leases for an administrator. etcd lists all leases for any user, unless one of them has a key
//     that the user may not read; then it lists none. A lease without keys may be revoked by any
//     user that knows its id.
//
//   - A token is prolonged by use at the member that sees it used, as in etcd, and is valid for at
//     least authorize.TokenTTL at all others, which in etcd have to be asked first.
//
//   - What one command may read or delete is bounded (store.Config.MaxTouched), and so are how many
//     operations it has in all (command.MaxOperations) and what a reading may answer with
//     (store.Memory.LargestAnswer). The error is ResourceExhausted and says so.
//
//   - Errors of Lock and Election have the codes that they have in other calls; in etcd they are
//     all Unknown. A call that waits for a lock or a lead hears at once that its key is gone, and a
//     campaign whose key went does not succeed.
//
// # Goroutines
//
// A stream whose client requires a leader has a goroutine that watches for the leader. A stream of
// lease renewals has one that receives and one that renews. All end with the stream.
//
// The package imports the store, and nothing above the store.
package etcdapi

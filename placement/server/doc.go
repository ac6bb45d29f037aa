// Package server is what the consistent core does for the cluster: it knows the nodes, the
// keyspaces and the partitions, and tells the others.
//
// # Rooms
//
// Each room is a package below this one, and imports only rooms above it in this list.
//
//   - hint has the errors by which a member refuses a call, with hints to the leader.
//   - coreclient finds the leader, follows hints, and forwards calls.
//   - veil hides keys of users from those who have no right to them.
//   - meta has the records in the core's store, their keys, and the turn.
//   - consumer keeps how far readers of a keyspace's changes have come.
//   - table streams the partition table from a member's store.
//   - steps decides what an operator does next. It is pure.
//   - reports keeps what nodes report to the leader.
//   - facts makes of records and reports what the planner is told.
//   - keyspaces creates, alters and drops keyspaces.
//   - authflag has the record of whether servers follow users and roles.
//   - backups has the backups that the core makes, and restores.
//   - upgrade has the level of formats that the cluster uses, and finalises upgrades.
//   - operators begins, orders, takes back and ends operators.
//   - nodes has how data nodes register, stay alive and leave.
//   - coordination has the services of the members' second store.
//   - membership changes the members of the core.
//   - server, this package, wires them and serves: a Server is a member's side, the service Core
//     for data nodes and the core's half of the service Cluster. ClusterService is the service
//     Cluster on any server: it answers from what is there, and forwards the rest.
//
// Two parts of this package are no rooms yet. They are listed in the order of their dependence:
//
//   - judgement of reports: which descriptors go into the table (follow.go, plausible.go, reshape.go,
//     split_report.go).
//   - scheduler: it has the planner follow the table and the reports, and begins the operators that
//     the planner proposes (schedule*.go, neighbours.go, node_status.go, settings.go, why.go,
//     watch_nodes.go).
//
// Only the leader answers; the others refuse with FailedPrecondition and a hint. Watching the table
// is answered by any member that has a leader.
//
// # Locks
//
// docs/locks.md has the order of all locks of a server. A room with a lock owns what the lock
// guards. The lock of the scheduler comes before that of reports.Reports, which is a leaf, as the
// locks of all rooms are. The turn of meta.Records comes before all of them, and is the only one
// that is held over a write of the store.
//
// # What is stored and what is not
//
// Stored, and so the same for every leader: nodes and the names of their directories, keyspaces,
// partitions, ids, operators. Whether a node is alive is a key under a lease of the store, which
// its heartbeats renew without a write. The leader of a partition, its size, and how a node does
// are known from heartbeats only (package reports).
//
// # Operators
//
// A change of a partition's replicas or leader, or a split of it, is an Operator record, one for
// each partition at most. It has no state but its goal: what is next follows from the descriptor
// (package steps). The partition's leader carries the steps out and reports the descriptor; the
// highest epoch goes into the table. Its node is told of an operator when it is recorded, and does
// not wait for its next heartbeat. A split takes the child's id from the counter when it is
// recorded, and is in the table with all of its parts at once, or not at all (split_report.go).
package server

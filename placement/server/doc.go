// Package server implements the consistent core's work for the cluster: it keeps track of nodes,
// keyspaces and partitions, and publishes them.
//
// # Rooms
//
// Each room is a package below this one, and imports only rooms above it in this list.
//
//   - hint has the errors with which a member refuses a call. They carry hints to the leader.
//   - coreclient finds the leader, follows hints, and forwards calls.
//   - veil hides keys of users from callers who have no right to them.
//   - meta has the records in the core's store, their keys, and the turn.
//   - consumer keeps the positions of the readers of a keyspace's changes.
//   - table streams the partition table from a member's store.
//   - steps decides what an operator does next. It is pure.
//   - reports keeps the reports that nodes send to the leader.
//   - facts converts records and reports to the planner's types.
//   - keyspaces creates, alters and drops keyspaces.
//   - authflag has the record that says whether servers must follow users and roles.
//   - backups has the backups and restores that the core makes.
//   - upgrade has the level of formats that the cluster uses, and finalises upgrades.
//   - operators records, orders, cancels and ends operators.
//   - nodes has the registration, the heartbeats and the removal of data nodes.
//   - coordination has the services of the members' second store.
//   - membership changes the members of the core.
//   - server, this package, connects the rooms and serves. Server implements a member's side: the
//     service Core for data nodes, and the core's half of the service Cluster. ClusterService
//     implements the service Cluster on any server: it answers from local data and forwards all
//     other calls.
//
// Two parts of this package are not rooms of their own yet. They are listed in the order of their
// dependence:
//
//   - judgement of reports: decides which reported descriptors go into the table (follow.go,
//     plausible.go, reshape.go, split_report.go).
//   - scheduler: updates the planner's state from the table and the reports, and begins the
//     operators that the planner proposes (schedule*.go, neighbours.go, node_status.go,
//     settings.go, why.go, watch_nodes.go).
//
// Only the leader answers calls. Other members refuse them with FailedPrecondition and a hint. Any
// member that has a leader answers requests to watch the table.
//
// # Locks
//
// docs/locks.md has the order of all locks of a server. A room with a lock owns the state that the
// lock guards. The scheduler's lock comes before the lock of reports.Reports. No other lock is
// taken while the lock of a room is held. The turn of meta.Records comes before all of these locks,
// and is the only one that is held during a write to the store.
//
// # Stored state and volatile state
//
// Stored, and therefore the same for every leader: nodes and the names of their directories,
// keyspaces, partitions, ids, operators. Whether a node is alive is a key under a lease of the
// store. The node's heartbeats renew the lease without a write. The leader of a partition, its
// size, and the condition of a node are known from heartbeats only (package reports).
//
// # Operators
//
// A change of a partition's replicas or leader, or a split or merge of the partition, is an
// Operator record. A partition has at most one operator. The operator has no state but its goal:
// the next step follows from the descriptor (package steps). The partition's leader carries out the
// steps and reports the descriptor. The descriptor with the highest epoch goes into the table. The
// leader's node is notified when an operator is recorded, so that it does not wait for its next
// heartbeat. A split takes the child's id from the counter when it is recorded. The parts of the
// split are written to the table in one transaction (split_report.go).
package server

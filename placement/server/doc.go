// Package server is what the consistent core does for the cluster: it knows the nodes, the
// keyspaces and the partitions, and tells the others.
//
// # Parts
//
// Server is a member's side: the service Core for data nodes, and the core's half of the service
// Cluster. It keeps everything in the core's store, under ReservedPrefix (metadata.go has the
// keys). Only the leader answers; the others refuse with FailedPrecondition and a CoreHint.
// Watching is answered by any member that has a leader.
//
// Client finds the leader among the listed members, follows hints, and tries again until the
// caller's context ends. Data nodes use it, and so does the service Cluster on every server that
// does not lead the core.
//
// ClusterService is the service Cluster on any server: it answers from what is there, and forwards
// the rest.
//
// # What is stored and what is not
//
// Stored, and so the same for every leader: nodes and the names of their directories, keyspaces,
// partitions, ids. Whether a node is alive is a key under a lease of the store, which its
// heartbeats renew without a write. The leader of a partition, its size, and how a node does are
// soft: the core's leader knows them from heartbeats, keeps the report with the highest epoch and
// term, and a new leader asks for all of them anew.
//
// # Creating and dropping
//
// Creating a keyspace is one transaction: the name is taken, the ids are allocated, the keyspace is
// CREATING, and what is still to be done is in a Creation record. From there the stepper goes on:
// it assigns the missing partitions and writes them in chunks, and makes the keyspace ACTIVE with
// its last transaction. Dropping likewise: DROPPING in one transaction, the partitions go in
// chunks, the keyspace last. Every transaction is conditional on the keyspace's record being what
// was read, so a step that is repeated, or that a deposed leader had under way, does no harm; the
// next leader goes on from what the store has.
//
// INVARIANT: ids of nodes, keyspaces and partitions are taken from one counter record in the same
// transaction that uses them, and the counters only rise. So no id is ever given out twice,
// whatever crashes.
//
// Requests that create or drop carry a token. The latest MaxTokens of them are kept with what was
// asked and what came of it, so that a repeated request is answered and not done again.
//
// # Operators
//
// A change of a partition's replicas or leader, or a split of it, is an Operator record, one for
// each partition at most. It has no state but its goal: what is next follows from the descriptor
// (package steps). The partition's leader carries the steps out and reports the
// descriptor; the highest epoch goes into the table. Its node is told of an operator when it is
// recorded (wake.go), and does not wait for its next heartbeat. A split takes the child's id from
// the counter when it is recorded, and is in the table with all of its parts at once, or not at all
// (split_report.go).
//
// # Consumers
//
// How far readers of a keyspace's changes have come is a record for each, by keyspace and name. The
// leader looks at all of them every protectInterval, and writes the lowest position into the
// keyspace's record as soon as the GC window is about to pass it (consumers_protect.go): nodes hear
// of it with the table. A consumer that is made or reset is protected in the transaction that
// records it. One that stays beyond its keep is marked, and its record stays; how that is known is
// in consumers_time.go.
//
// # Members of the core
//
// The record of members lies in the store beside the keys. A change of them is a goal (CoreGoal),
// one at a time; what is done next follows from the members as they are (core_step.go), so that the
// next leader goes on with it. Members, and servers that offer themselves, announce themselves: an
// address that has changed is an update of the record. All answers to clients of the core carry, in
// hints or in themselves, the members, which Clients follow.
//
// # The coordination store
//
// Members keep a second store, with a Raft group of its own, for what clients coordinate: locks,
// elections, leases. Nothing here reads or writes its keys. The core's leader founds it by a record
// (coordination_founding.go). Its members follow the core's: its leader copies each record of
// members when the core has changed it (coordination_step.go), and the core's leader takes no
// further step, and tells no member that it was removed, before that.
//
// # Turns
//
// Registering, creating and dropping read, decide and write. They take turns within a leader
// (Server.turn), only to save them from failing each other's conditions; correctness rests on the
// conditions.
//
// The package imports what lies below it: rpc, range/keys, and its siblings in placement.
package server

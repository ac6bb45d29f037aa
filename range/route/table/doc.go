// Package table has what a sender of requests knows of its cluster: keyspaces, their partitions,
// the nodes that hold them, and which node leads each partition.
//
// Known takes in updates of the core's table stream, and descriptors that nodes sent with an
// answer. It publishes a Table, an immutable picture behind an atomic pointer. A Table shares with
// the Table before it what did not change: keyspaces, and the partitions of each, lie in persistent
// trees (package tree). The way to a key is its hash number, in a hash keyspace, and then the key
// itself: a number may have several partitions. layout.go says which partitions are shown where
// descriptors overlap. No news make a hole.
//
// # Leaders
//
// Each partition has one hint: node and term. A hint never gives way to one of a lower term. Beside
// the hint stands what is known of the other replicas (replicas.go). Both outlive the pictures that
// show the partition.
//
// INVARIANT: a published Table, its Keyspaces and Partitions never change; Hints hang off them, and
// have locks of their own.
//
// The lock of a Known is held while nodes are made and moved, so it lies above the locks of package
// nodes (docs/locks.md).
//
// The package must not import the sender.
package table

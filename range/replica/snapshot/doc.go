// Package snapshot writes what a partition has in a state database as a stream, and reads such a
// stream into tables, which replace what another replica of the partition has when they are
// ingested. The format of the stream is in snapshot.go.
//
// A Snapshot is a handle of a consistent state; it holds no lock, and keeps its replica open until
// it is closed. A Receiver belongs to one replica. It verifies everything, claims the partition's
// span in the node's table of spans, and keeps the pause that follows a snapshot for which the disk
// had no space, under a lock of its own with which nothing else is locked. To install what it has
// staged is the replica's work: the replica decides when the state may change.
package snapshot

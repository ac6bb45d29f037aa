// Package snapshot writes a partition's part of a state database as a stream, and reads such a
// stream into tables, which replace what another replica of the partition has when they are
// ingested. The format of the stream is in snapshot.go.
//
// A Snapshot is a handle of a consistent state; it holds no lock, and keeps its replica open until
// it is closed. A Receiver belongs to one replica. It verifies everything, claims the partition's
// span in the node's table of spans, and keeps the pause after a snapshot for which the disk had no
// space, under a lock of its own; nothing else is locked under that lock. The replica installs what
// was staged: it decides when the state may change.
package snapshot

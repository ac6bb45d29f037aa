// Package raftlog keeps the Raft logs, hard states and identities of all groups of a process in one
// log database.
//
// # Data flow
//
// A group's worker submits what RawNode wants stored (Log.Submit). One append worker takes
// everything that all groups have submitted since its last turn, writes it as one batch with one
// sync, and then reports the whole batch at once: one sync and one wake-up for many groups. While a
// sync runs the next batch gathers, so that the size of a batch adapts to the load by itself.
//
// Reads (raft.Storage, implemented by Group) come from an in-memory tail of recent entries and fall
// back to the database. The tail holds the entries that are not applied yet, and a bounded number
// of older ones for followers that are a little behind; a sleeping group frees its tail.
//
// # Invariants
//
//   - What Group shows through raft.Storage is on disk and synced: memory is updated after the sync
//     and before the append is reported.
//   - The log is truncated only at or below the index that the state machine would still have after
//     a crash (DESIGN section 4); the caller passes that index, this package never guesses it.
//   - An entry carries a CRC-32C over its index, term, type and data. If the checksum is wrong, the
//     read fails with an error that names group and index, and Raft never gets the entry.
//   - The identity of a removed replica stays as a tombstone: no replica with an id at or below it
//     is created again (invariant 8).
//
// Layout of the log database: 'g', the group id (8 bytes, big endian), a kind byte, and for entries
// the index (8 bytes, big endian). See layout.go.
//
// Lock order (docs/locks.md): Log.mu before Group.mu; neither is held over I/O.
package raftlog

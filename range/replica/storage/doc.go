// Package storage is the layout of a partition in a state database: its spans of state keys, the
// applied record, the descriptor, and what follows from these: statistics, checksums, removal. It
// holds no state and no lock. Replicas use it, and so do tools for the databases of stopped
// servers.
//
// A partition has three spans (Spans): the local one, by its id, with the applied record and the
// descriptor; the anchor span, with locks and transaction records; the data span, with versions.
//
// INVARIANT: the applied record is in the batch of the changes that it describes, and is the same
// on every replica that has applied the same index.
package storage

// Package table streams the partition table from the store of a member of the core. A stream sends
// the whole table first, in updates of limited size, and then the changes. A stream can be resumed
// from a revision. If the store has compacted that revision, the whole table is sent again, with
// Reset.
//
// A data node has its own copy of the table, which is also a Source. SendTo sends the updates of a
// Source to a receiver, and ends the stream of a receiver that does not read.
//
// INVARIANT: an update has all changes of a revision, or none of them.
package table

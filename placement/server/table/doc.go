// Package table streams the partition table from the store of a member of the core: first
// everything, in updates of bounded size, then changes. A stream can be resumed from a revision. If
// the store has compacted that revision, everything is sent again, with Reset.
//
// A data node has a copy of the table of its own, which is a Source as Streams is. SendTo sends the
// updates of either to a receiver, and cuts off one that does not read.
//
// INVARIANT: an update has all of a revision, or nothing.
package table

// Package table is the partition table as one data node knows it: an immutable Table of nodes,
// keyspaces and partitions, and the Current one that all of the node reads without a lock.
//
// The Follower follows the core's stream of changes. It keeps each change in the node's log
// database before it publishes the table that has it, so that a node that restarts without the core
// knows what it knew. Current.Subscribe tells clients and servers what changes: a subscriber keeps
// the last table that it saw, and gets the difference, so nothing is queued for it.
//
// INVARIANT: a table never goes back: an older revision is refused, and a descriptor gives way only
// to one of a later epoch.
package table

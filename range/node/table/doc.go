// Package table is the partition table as one data node knows it: an immutable Table of nodes,
// keyspaces and partitions, and Current, through which all of the node reads it without a lock.
//
// The Follower follows the core's stream of changes. It writes each change to the node's log
// database before it publishes the table with the change, so that a node that restarts without the
// core knows what it knew. Current.Subscribe sends changes to clients and servers: a subscriber
// keeps the last table that it saw, and gets the difference, so nothing is queued for it.
//
// INVARIANT: a table never goes back: an older revision is refused, and a descriptor gives way only
// to one of a later epoch.
package table

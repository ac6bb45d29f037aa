// Package compaction keeps the history of a store at its length: the leader compacts revisions that
// are older than necessary, in steps, and removes the data that a step has left. A step is a
// command, which package store applies.
//
// Compactor.mu is a leaf.
package compaction

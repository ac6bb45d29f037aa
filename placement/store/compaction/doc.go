// Package compaction keeps the history of a store at its length: on the member that leads, it
// compacts what is older than is to be kept, in steps, and has removed what a step has left. What a
// step does is a command's, as package store applies it.
//
// Compactor.mu is a leaf.
package compaction

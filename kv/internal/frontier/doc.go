// Package frontier is how far a change feed has got: for each part of its keys, the timestamp up to
// which all changes are known. It is for package kv.
//
// A frontier is a run of parts, in the order of their keys, which hold each key of the feed once.
// It is cut where partitions begin and end, and where an answer has ended, and joined where parts
// have come to the same timestamp. Where it is cut says nothing of what is known: the cuts may
// follow the partitions as these split and merge, and whatever was known of a key stays known.
//
// INVARIANT: what is known of a key never goes back, but by Back.
//
// It knows no partitions, no requests and no clock. It is for one goroutine.
package frontier

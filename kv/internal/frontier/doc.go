// Package frontier is the position of a change feed: for each part of its keys, the timestamp up to
// which all changes are known. Package kv uses it.
//
// A frontier is a sequence of parts, in the order of their keys. Each key of the feed is in one
// part. Parts are cut at bounds of partitions and at the ends of answers, and joined if they have
// the same timestamp. Neither changes the timestamp of a key, so the parts can follow the
// partitions as these split and merge.
//
// INVARIANT: the known timestamp of a key never goes back, except by Back.
//
// The package depends on no partitions, requests or clock. One goroutine uses a Frontier.
package frontier

// Package frontier is the position of a change feed: for each part of its keys, the timestamp up to
// which all changes are known. It is for package kv.
//
// A frontier is a sequence of parts, in the order of their keys, which hold each key of the feed
// once. It is cut at bounds of partitions and at the ends of answers; parts with the same timestamp
// are joined. Cutting and joining do not change what is known of a key: so the parts can follow the
// partitions as these split and merge.
//
// INVARIANT: the known timestamp of a key never goes back, except by Back.
//
// It knows no partitions, no requests and no clock. It is for one goroutine.
package frontier

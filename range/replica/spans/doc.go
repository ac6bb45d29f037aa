// Package spans maps spans of internal keys in the state database to the replicas of a node. Table
// has a lock of its own, under which nothing else is called or locked.
package spans

// Package load loads many records into a keyspace, much faster than puts do (kv.Keyspace.Load).
//
// A load reads the records, and sorts them if they are not in order (package sorting). It may have
// partitions split and spread over the nodes (presplit.go). Then it cuts the sorted records into
// blocks of a few megabytes, and sends each to its partition, a few at a time (write.go). A block
// whose partition has split meanwhile is cut again, at the same identity: each part takes effect
// once. What cannot be split or spread is noted, and the load goes on without.
package load

// Package load loads many records into a keyspace, much faster than puts do (kv.Keyspace.Load).
//
// A load reads the records, and sorts them if they are not in order (package sorting). On request
// it splits partitions and spreads them over the nodes (presplit.go). Then it cuts the sorted
// records into blocks of a few megabytes, and sends each to its partition, a few at a time
// (write.go). A block whose partition has split meanwhile is cut again, with the same identity:
// each part takes effect once. If partitions cannot be split or spread, that is noted, and the load
// continues.
package load

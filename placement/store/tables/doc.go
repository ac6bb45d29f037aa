// Package tables is the layout of a store in its database: its tables (Layout makes their keys),
// and a Reader of one state of them.
//
// A Reader has one iterator, so that all its results come from one state: it sees neither later
// batches nor a snapshot that is installed meanwhile. It reads keys and ranges at a revision
// (range.go), evaluates comparisons and reads of transactions (txn.go), and reads the changes from
// a revision on (events.go), the other records (records.go), and checksums (sums.go). The state
// machine has a Reader on the batch that it writes, and evaluates commands with it; reads outside
// the log use a Reader on the database. So both give the same results.
//
// One goroutine uses a Reader. It takes no locks except those of the caches that it is given:
// RangeCounts, keycount.Blocks and newest.Cache. It writes nothing. Malformed data is an error.
package tables

// Package tables is the layout of a store in its database: its tables (Layout makes their keys),
// and a Reader of one state of them.
//
// A Reader has one iterator, so that everything it returns is of one state: it sees neither later
// batches nor a snapshot that is installed meanwhile. It reads keys and ranges at a revision
// (range.go), what a transaction compares and reads (txn.go), the changes from a revision on
// (events.go), the other records (records.go), and sums over all of it (sums.go). The state machine
// has a Reader on the batch that it writes, and evaluates commands with it; readers outside the log
// have one on the database. So both answer alike.
//
// A Reader is for one goroutine, and takes no lock but those of the memories that it is given:
// RangeCounts, keycount.Blocks and newest.Cache. It writes nothing. Malformed data is an error.
package tables

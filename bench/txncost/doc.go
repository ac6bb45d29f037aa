// Command txncost measures what transactions cost beside single reads and writes, on a cluster of its own: make bench-txn.
//
// All kinds of operation take turns, one after the other, over and over, from one client: what the machine does besides falls
// on all of them alike. What is compared are medians.
package main

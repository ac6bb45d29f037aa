// Package load writes rows of a backup into a keyspace.
//
// The rows arrive in order, so that the rows of one partition follow each other. They are cut into
// blocks (package rpc/block). Each block has rows of one partition, and several blocks are sent at
// the same time. If the partition of a block has split, the block is cut again.
//
// The server does not write rows that already exist with the same value and expiry. So a span that
// was loaded in part can be loaded again as a whole, at the cost of reading the existing rows.
package load

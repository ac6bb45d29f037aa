// Package load writes rows of a backup into a keyspace.
//
// The rows come in their order, so that those of one partition come one after the other: they are
// cut into blocks (package rpc/block), each of one partition, and some blocks are on their way at
// the same time. A block of a partition that has split meanwhile is cut again.
//
// A block leaves out the rows that are there already with the same value and expiry. So a span that
// was loaded in part is loaded again as a whole, and costs the reading.
package load

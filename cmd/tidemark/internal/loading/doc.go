// Package loading brings many records into a keyspace: it gathers them by partition into batches
// and has a bounded number of batches under way.
//
// One goroutine, the caller's, reads and gathers. A partition has at most one batch under way and
// one that is being gathered, so records of the same key are written in the order in which they
// came, and the last one wins as it would if they were written one after another. Memory is bounded
// by the batches under way plus Options.Gathered bytes.
//
// Writing a record again writes the same value again: an interrupted load can simply be repeated.
package loading

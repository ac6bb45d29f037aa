// Package loading writes many records into a keyspace. It collects them by partition into batches,
// and writes a limited number of batches concurrently.
//
// One goroutine, the caller's, reads and collects. A partition has at most one batch that is being
// written and one that is being collected. So records of the same key are written in the order in
// which they came, and the last one wins. Memory is limited by the batches that are being written
// plus Options.Gathered bytes.
//
// Writing a record again writes the same value again. So an interrupted load can be repeated.
package loading

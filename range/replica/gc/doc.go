// Package gc removes what no client can read any more from a partition: versions below the garbage
// collection threshold, expired values, and records of requests and transactions.
//
// A collection is a series of entries of the partition's log. The first raises the threshold:
// nothing below it can be read from then on. The others remove versions that no read at or above
// the threshold sees, and records. Each is evaluated in its turn by the replica that leads, with no
// write pending, so what it finds is exactly what there is when it is applied.
//
// A Collector belongs to one replica. Its lock guards a few words; under it nothing is called or
// locked, and it may be taken with the replica's lock held.
package gc

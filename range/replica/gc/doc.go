// Package gc removes from a partition what no client can read any more: versions below the garbage
// collection threshold, expired values, and records of requests and transactions.
//
// A collection is a series of entries of the partition's log. The first raises the threshold: no
// version below it can be read from then on. The others remove records, and versions that no read
// at or above the threshold sees. The leader evaluates each entry in its turn, with no write
// pending, so what it finds is exactly what there is when the entry is applied.
//
// A Collector belongs to one replica. Its lock guards a few words; under it nothing is called or
// locked, and it may be taken with the replica's lock held.
package gc

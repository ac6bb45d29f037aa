// Package feed is the part of a client's change feed beside the merging of changes (package
// changes): the questions to the partitions of a keyspace, the record of a consumer's position, and
// the metrics.
package feed

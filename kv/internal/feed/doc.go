// Package feed connects a client's change feed to the cluster: it asks the partitions of a keyspace
// for changes, records the position of a consumer, and keeps the metrics. Package changes merges
// the changes.
package feed

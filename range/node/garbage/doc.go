// Package garbage decides which partitions of a data node have their garbage collected, and when.
// The Collector's queue is its own; package range/replica/gc does the work for one partition.
package garbage

// Package reports keeps what nodes report to the leader of the core in heartbeats, and what is not
// stored: who leads which partition, how large and how busy partitions are, the state of nodes, and
// descriptors that the table may lack (Claim). Of each partition it keeps the report of the highest
// epoch, and of the highest term within that.
//
// Reports owns all of it under one lock, which is a leaf: nothing is called under it. The reports
// belong to one leadership. The next one begins with none, and makes nodes report again.
//
// Reports also remembers the operators that are under way, and which nodes have to be told that
// there are orders for them (Notify).
//
// INVARIANT: all that is kept is bounded, by the partitions of the cluster and by constants for
// each node and report, whatever nodes send.
package reports

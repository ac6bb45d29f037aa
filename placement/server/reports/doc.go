// Package reports keeps the volatile state that nodes report to the leader of the core in
// heartbeats: who leads which partition, the size and load of partitions, the state of nodes, and
// descriptors that the table may lack (Claim). For each partition it keeps the report with the
// highest epoch and, within the epoch, the highest term.
//
// Reports owns all of this state under one lock. Nothing is called while the lock is held. The
// reports belong to one leadership. The next leadership begins without reports, and asks the nodes
// to report everything again.
//
// Reports also keeps the operators that are under way, and the nodes that must be told of new
// orders (Notify).
//
// INVARIANT: the size of the state is limited, by the number of partitions of the cluster and by
// constants for each node and report, whatever nodes send.
package reports

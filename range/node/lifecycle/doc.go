// Package lifecycle makes and removes the replicas of a data node.
//
// The Reconciler makes the replicas those that the table lists. A replica is also made by a split
// that the parent's replica here applies (Children), and goes when its partition is merged into
// another one (Merged).
//
// INVARIANT: a replica is removed only on a positive statement of a complete table of this cluster,
// whose revision is not older than any that was seen: its keyspace was dropped, a later descriptor
// does not name it, or another partition has its first key with a higher generation, and so has
// consumed it. Silence, errors and empty answers remove nothing.
//
// A removal is announced on disk before it begins (removal.go), so that a crash in its middle does
// not leave half a replica to be opened. A replica that is to be removed is closed at once. It
// leaves the disk together with others that are to be removed within two seconds (removal_pace.go),
// so that thousands of replicas that move away one by one cost only a flush of the memtables now
// and then.
//
// Locks: those of the list of due partitions (due.go), the Children and Merged are leaves: nothing
// is called with one of them held.
package lifecycle

// Package birth is about partitions that split off from others, and merge with them, on the disk of
// one node: what becomes of a child when its parent's split is applied, and what is to be done at
// start when a crash has left one half of a split, or of a merge.
//
// The state and the logs are two databases, and only the logs are synced. Applying a split writes
// the child's base into the state, and after that the child's log is made, with a sync. So a crash
// may leave a log without its base, of a replica that has voted and acknowledged entries: the base
// is made again, by applying the parent's log up to the split (Restore). It is all there: the log
// is truncated only below what is durable in the state. Or it may leave a base without its log, of
// a replica that was never opened: then the log is made (Orphans).
//
// Applying a merge deletes the base of the partition that is consumed, and its log goes later. A
// crash may leave the log alone, when what has consumed it is durable: then the log goes at start
// (Bury). Or it takes the merge back, and both replicas are as before: then the merge is applied
// once more, perhaps while a log is replayed for another reason (Right).
//
// # Imports
//
// range/replica, range/raftlog, range/engine, range/group and range/keys.
package birth

// Package splitrecovery repairs splits and merges on the disk of one node: it decides what a split
// does for the child when it is applied, and completes or takes back at start what a crash has left
// of a split or of a merge.
//
// The state and the logs are two databases, and only the logs are synced. Applying a split writes
// the child's base into the state; after that the child's log is made, with a sync. So a crash may
// leave a log without its base, of a replica that has voted and acknowledged entries: the base is
// made again by applying the parent's log up to the split (Restore). That log is complete: it is
// truncated only below what is durable in the state. Or a crash may leave a base without its log,
// of a replica that was never opened: then the log is made (Orphans).
//
// Applying a merge deletes the base of the partition that is subsumed; its log is removed later. A
// crash may leave only the log when the merge is durable: then the log is removed at start (Bury).
// Or the crash takes the merge back, and both replicas are as before: then the merge is applied
// once more, perhaps while a log is replayed for another reason (Right).
//
// # Imports
//
// range/replica, range/raftlog, range/engine, range/group and range/keys.
package splitrecovery

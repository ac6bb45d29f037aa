// Package birth is about partitions that split off from others, on the disk of one node: what
// becomes of a child when its parent's split is applied, and what is to be done at start when a
// crash has left one half of it.
//
// The state and the logs are two databases, and only the logs are synced. Applying a split writes
// the child's base into the state, and after that the child's log is made, with a sync. So a crash
// may leave a log without its base, of a replica that has voted and acknowledged entries: the base
// is made again, by applying the parent's log up to the split (Replay). It is all there: the log is
// truncated only below what is durable in the state. Or it may leave a base without its log, of a
// replica that was never opened: then the log is made (Orphans).
//
// # Imports
//
// range/replica, range/raftlog, range/engine, range/group and range/keys.
package birth

// Package machine is a replica's state machine as it is in memory, which the rooms of the replica
// share: what is applied, who leads, what is on its way to the log, at which timestamps was read,
// which locks there are, and what is closed. Machine.Mu guards all of that: its fields are rooms
// without a lock of their own.
//
// INVARIANT: the choice of a write's timestamp and its becoming a pending write are one step under
// the lock (package eval), as are a read's look at the pending writes and its entering the
// timestamp cache (package read). So of any write and read, one knows of the other.
//
// Beside that lock lie what all may know of the partition (its descriptor, what has consumed it,
// the garbage collection threshold), the count of what uses the replica, the way of an answer to
// its client, and the refusals.
package machine

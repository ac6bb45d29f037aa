// Package machine is the state machine of a replica in memory, which the rooms of the replica
// share: what is applied, who leads, what is on its way to the log, at which timestamps keys were
// read, which locks there are, and what is closed. Machine.Mu guards all of that. Its fields are
// rooms that have no lock of their own.
//
// INVARIANT: the choice of a write's timestamp and its becoming a pending write are one step under
// the lock (package eval), as are a read's look at the pending writes and its entering the
// timestamp cache (package read). So of any write and read, one knows of the other.
//
// Outside that lock lie: what everybody may know of the partition (its descriptor, the partition
// that has consumed it, the garbage collection threshold), the count of the replica's users, the
// sending of answers to clients, and the refusals.
package machine

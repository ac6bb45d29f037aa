// Package commitwait holds back what no client may hear of before every clock of the cluster has
// passed its timestamp.
//
// A commit with commit wait is replicated and applied as any other, but no client is told of it
// before every clock has passed its timestamp. So whatever begins because of the commit has a later
// timestamp, on whichever node. That it waits is part of what is replicated, so it does not matter
// which node leads by then:
//
//   - A transaction record says so (txn.Record.CommitWait). Until the time has come the coordinator
//     holds back the answer to the client, and to a client that asks because a lock is in the way.
//     The locks become versions when a client has been told, and so not before.
//   - The versions of a one-phase commit say so each (mvcc.Version.CommitWait): they are there as
//     soon as the entry is applied. A read that has seen such a version, be it a tombstone, is put
//     aside until the time has come, and then reads again, at the same timestamp and to the same
//     effect. What a write tells of the value before it (compare and swap, whether a key that is
//     deleted existed, how many there were, a lock that returns the value) is held back.
//
// In a keyspace with commit wait every write that is evaluated in one partition is like a one-phase
// commit that asked for it.
//
// Where clocks are bounded by their distance from true time (hlc.KernelBound), only true time has
// passed the timestamp when the wait is over, and not every clock. So what waits gets, besides, a
// timestamp that true time cannot have passed when the commit was requested (hlc.Clock.WaitFloor):
// whatever waits later is above. Of a transaction of two phases each Prepare says that it will
// wait.
//
// Blind writes over such a version do not wait, nor does what tells only that something has
// changed.
package commitwait

// Package commitwait holds back what no client may hear of before every clock of the cluster has
// passed its timestamp.
//
// A commit with commit wait is replicated and applied like any other, but no client is told of it
// before every clock has passed its timestamp. So whatever begins because of the commit has a later
// timestamp, on whichever node. The wait is a part of what is replicated, so it does not matter
// which node leads by then:
//
//   - A transaction record has a flag (txn.Record.CommitWait). Until the time has come the
//     coordinator holds back the answer to the client, and to a client that asks because a lock is
//     in its way. Locks become versions only after a client has been told.
//   - Each version of a one-phase commit has a flag (mvcc.Version.CommitWait): the versions are
//     there as soon as the entry is applied. A read that has seen such a version, even a tombstone,
//     is put aside until the time has come, and then reads again at the same timestamp, with the
//     same result. Answers of writes that tell of the value before (compare and swap, whether a
//     deleted key existed, how many keys there were, a lock that returns the value) are held back.
//
// In a keyspace with commit wait every write that is evaluated in one partition is like a one-phase
// commit that asked for it.
//
// Where clocks are bounded by their distance from true time (hlc.KernelBound), only true time has
// passed the timestamp when the wait is over, and not every clock. So a commit with commit wait
// also gets a timestamp that true time cannot have passed when the commit was requested
// (hlc.Clock.WaitFloor): every later commit that waits is above it. In a transaction of two phases
// each Prepare says that the commit will wait.
//
// Blind writes over such a version do not wait, nor do answers that tell only that something has
// changed.
package commitwait

// Package replica is one partition's state machine over a Raft group: it evaluates the requests of
// clients on the leader, and applies their effects on every replica.
//
// # Writing
//
// Take puts writes into the partition's queue, and Evaluate has them evaluated. If no goroutine is
// evaluating, the calling goroutine does: it takes what is queued (about one MiB at most),
// evaluates it in order, puts all effects into one Raft entry and proposes that. Up to
// Config.MaxInFlight proposals are on their way; then the queue waits, and the completion of an
// entry sets off the next evaluation. So a lone client waits for no other, and many share entries:
// the slower replication is, the more of them. Only commits of clients that wait in a long queue
// for a lock are gathered even if another proposal may be made (eval/group_commit.go).
//
// Evaluation sees the engine, and on top of it the pending writes, which are proposed and not yet
// applied. It produces the batch of versions to write; followers apply the bytes of that batch.
// Responses are sent when the entry has been applied here.
//
//	Take ─── queue ─ evaluate ─ Propose ─ ... Raft ... ─ Apply ─ responses, next evaluation
//	                    │  pending add              pending remove │
//	                    └ engine (read)                engine (write)
//
// # Reading
//
// A read takes its timestamp from the clock, then proves leadership (the lease, or a read index),
// then enters its key and timestamp into the timestamp cache and checks which writes are in flight,
// and only then reads the engine. read/read.go says why in this order. Other replicas serve reads
// at closed timestamps (read/closed_read.go), and reads that the leader has admitted like its own
// (read/admission.go).
//
// A read or a write that meets a transaction's lock waits in package concurrency, which decides
// what to ask the transaction's coordinator, and when the request goes on.
//
// # Rooms
//
//   - command: the requests to a partition, one file for each (three for Prepare).
//   - concurrency: locks, the requests that wait for them, pushes, the resolution of intents.
//   - proposal: the queue, pending writes, recent writes, entries and their codec.
//   - tscache: at which timestamps keys were read.
//   - config: the configuration that replicas of a node share; metrics: their metrics.
//   - leadership: epochs, the gate behind which requests are served, the low-water mark.
//   - refusal: the errors with which a replica answers.
//   - commitwait: answers that are held until all clocks have passed a timestamp.
//   - machine: the state machine in memory, with the lock that the rooms share.
//   - eval: writes, from the queue to the log.
//   - read: reads, by the leader and by others, of one partition and of several.
//   - storage: a partition's keys in a state database: applied record, descriptor, spans, counts.
//   - spans: which replica of a node has which span of the state.
//   - snapshot: a partition's state as a stream, and the tables made from such a stream.
//   - reshape: the entries by which a partition splits, merges, freezes and changes its replicas,
//     and the rules that these follow.
//   - gc: garbage collection of versions that no client can read any more.
//   - here: apply, snapshots, leadership, the closing of timestamps, and the wiring of the rooms.
//
// # Where to look
//
//   - Where is a put evaluated? command/put.go decides what it writes; eval/evaluate.go calls that
//     (evaluation.evaluate), and evaluation.write chooses the timestamp and makes the version a
//     pending write.
//   - Where does it wait for the log? Among the answers of its machine.Entry, from eval/propose.go
//     on, until apply.go has applied the entry (eval.Evaluator.Answer).
//   - Where is a lock released? A resolve marks it (resolution.transaction in eval/resolve.go), a
//     one-phase commit does (readAndReleaseLocked in eval/one_phase.go), as does an UNLOCK
//     (eval/acquire.go). It goes when that entry is applied (concurrency.Table.Apply). A volatile
//     lock goes when the request is evaluated (releaseLocked in eval/unreplicated_lock.go), or with
//     the epoch.
//   - What happens to waiting writes when leadership is lost? Replica.LeadershipChanged gives all
//     of them up (GiveUpLocked, RefuseQueueLocked in eval/ending.go): what is proposed is answered
//     OUTCOME_UNKNOWN, what is queued or waits for a lock NOT_LEADER.
//   - Where would a time to live of keys go? The field into command/put.go and the header of a
//     version (range/mvcc/version.go); reads take an expired version for a tombstone
//     (range/mvcc/get.go, scan.go), and so does what garbage collection removes
//     (range/mvcc/garbage.go, driven by package gc).
//
// # What answers what
//
// A write is evaluated only under the term that its sender named, and an entry of the term is
// applied. What is proposed when leadership is lost is answered OUTCOME_UNKNOWN, what is only
// queued NOT_LEADER. A retry finds its own request id in the versions of its key
// (command/replayed.go), and is answered as the first attempt would have been.
//
// # Invariants
//
//   - An entry takes effect only if everything it was evaluated on has (storage.Record.Accepts).
//   - A pending write is removed only after it can be read from the engine, and is answered only
//     after that (proposal.Pending).
//   - The choice of a write's timestamp and its becoming a pending write are one step under the
//     lock, as are a read's look at the pending writes and its entering the timestamp cache. So of
//     any write and read, one knows of the other.
//   - The applied record is in the batch of what it describes (apply.go).
//   - The garbage collection threshold is raised by an entry before the entries that remove
//     anything, and published before they are committed; reads compare with it after they have read
//     (read/read.go).
//
// # Locks
//
// In this order (docs/locks.md has that of the whole server):
//
//  1. Replica.applying is held while entries are applied, or a snapshot is installed; with it
//     held, that of a right neighbour which is consumed may be taken, and so on to the right.
//  2. machine.Machine.Mu is the lock of eval.Evaluator and read.Reader, of concurrency.Manager,
//     closing.Timestamps, proposal.Pending and the other rooms that have no lock; under it only
//     memory is touched: no engine, no group (but the atomics of Lease), no Reply.
//  3. The locks of commitwait.Queue, gc.Collector, spans.Table and snapshot.Receiver, the budgets
//     of the node, and the clock's lock. Nothing else is locked under these.
//
// Apply, LeadershipChanged, Install and Snapshot are called one at a time by the group.
//
// # Imports
//
// hlc, rpc's protobuf packages, range/keys, range/engine, range/mvcc, and from range/group the
// types of the state machine's contract. Never range/host: what is needed of a group is the
// interface Group.
package replica

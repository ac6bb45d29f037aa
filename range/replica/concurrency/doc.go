// Package concurrency is the concurrency control of one partition: which keys and spans
// transactions have locked, which requests wait for these locks, which transaction gives way, and
// how the locks of decided transactions become versions.
//
// # States
//
// A write that meets a lock of another transaction becomes a Waiter: it stands in the wait queue of
// that transaction (Wait). A read becomes a waiter of all transactions in its way at once
// (WaitForAll). For each transaction for which a request waits, its coordinator is asked (push.go):
// for a write, whether the transaction can be aborted, because the write's transaction is older
// (wound-wait); for a read, whether it can be kept from committing at or below the read's
// timestamp. The coordinator's answer is kept with the transaction (Learn).
//
//	write ── Wait ──▶ waits ── lock released ──▶ woken: evaluated again, before all that is queued
//	                    │ ── deadline ─────────▶ expired: answered LOCKED
//	                    │ ── aborted ──────────▶ cancelled: answered
//	read ─ WaitForAll ▶ waits ── pushes answered, or the transactions gone ──▶ it looks again
//
//	lock:  free ─ Acquire ─▶ proposed ─ Apply ─▶ applied ─ MarkReleased ─▶ releasing ─ Apply ─▶ free
//	       free ─ AcquireVolatile, AcquireSpans ─▶ volatile ─ Release ─▶ free
//
// When the outcome of a transaction is known, its locks are released entry by entry
// (resolution.go).
//
// # Division of work
//
// A Manager has a type for each part of the state, with its methods: the lock table (Table), the
// writes and the reads that wait (Writes, Reads), the questions to coordinators (Pushes), the
// release of locks (Resolutions), this partition's memory as a coordinator (Coordinated), and a
// timer (Timer). The Manager's own methods are those that concern several of them.
//
// All of these are sets of state transitions. They do no I/O, start no goroutine, and send nothing:
// a transition adds work to the Work that it is given, and the owner, a replica, does that work
// when it has released its lock. Timers call the Owner, which takes its lock and calls back. No
// type here depends on requests: a request that waits is described by a Waiter or a Read, with an
// element that only the owner interprets.
//
// # Invariants
//
//   - Requests that wait are in the leader's memory only, and belong to its leadership epoch:
//     GiveUp, at the end of an epoch, takes all of them out, and forgets locks in flight and
//     volatile ones. The locks that are applied stay: every replica has them.
//   - Requests that wait for one lock go on in the order in which they came.
//   - For each transaction there is at most one push of each kind on its way.
//   - A read passes a lock only if its transaction cannot commit at a timestamp that matters to the
//     read, as its coordinator has said since the read came (read.go).
//   - Of the attempts of a request that have waited and are not finished, at most one is not
//     ended by a later one (attempts.go).
//
// # Locks
//
// The package has no lock of its own. All methods of a Manager and its parts are called with the
// owner's lock held, but Table.Held and Writes.Disconnected. What the managers of a node share
// (Config) is safe for concurrent use.
//
// # Imports
//
// hlc, txn, kvpb and rpc's timestamps, range/keys, range/mvcc and range/admission
// (imports_test.go). Never range/replica, nor its other rooms.
package concurrency

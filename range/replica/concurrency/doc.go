// Package concurrency has the transactions of one partition take turns: which keys and spans they
// have locked, who waits for these locks, whose transaction gives way, and how the locks of
// decided transactions become versions.
//
// # States
//
// A write that meets a lock of another transaction becomes a Waiter: it stands in the wait queue of
// that transaction (Wait). A read becomes a waiter of all transactions in its way at once
// (WaitForAll). For each transaction that anything waits for, its coordinator is asked (push.go):
// for a write, whether the transaction can be aborted, because the write's transaction is older
// (wound-wait); for a read, whether it can be kept from committing at or below the read's
// timestamp. What the coordinator says is kept with the transaction (Learn).
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
// writes and the reads that wait (Writes, Reads), what coordinators are asked (Pushes), the release
// of locks (Resolutions), what this partition remembers as a coordinator (Coordinated), and the
// timer of all that (Timer). The Manager's own methods are those that concern several of them.
//
// All of these are sets of state transitions. They do no I/O, start no goroutine, and send nothing:
// what a transition leaves to be done is in the Work that it is given, and the owner, a replica,
// does that when it has released its lock. Timers call the Owner, which takes its lock and calls
// back. No type here knows requests: what waits describes itself (Waiter, Read) and brings along an
// element that means nothing here.
//
// # Invariants
//
//   - What waits is in memory of the leader only, and belongs to its leadership epoch: GiveUp, at
//     the end of an epoch, takes out all of it, and forgets what is in flight and volatile. The
//     locks that are applied stay: every replica has them.
//   - What waits for one lock goes on in the order in which it came.
//   - For each transaction there is at most one push of each kind on its way.
//   - A read passes a lock only if its transaction cannot commit at or below what matters to the
//     read, by what its coordinator has said since the read came (read.go).
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

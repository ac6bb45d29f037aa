// Package locks is the lock table of one partition: which keys transactions have locked, and what
// waits for them. It is memory only, and pure: no clock, no goroutine, no I/O, no lock of its own.
// What is stored of a lock is package txn's Lock; the table is what a replica knows of those
// without asking the engine.
//
// A transaction is known by its id and its anchor. Clients choose ids, and are told those of
// others: partitions may have locks under one id with different anchors, and come together by a
// merge. What is decided at one of the anchors is nothing to the locks that name another one.
//
// A key has at most one lock, of one transaction. The lock has up to two states: the applied one,
// which is in the engine, and the proposed one, which an entry on its way will put in its place. A
// lock may also be about to go: then an entry on its way releases it. All three end when the entry
// is applied (Apply, Release), or when what is in flight is given up (DropInFlight).
//
// A volatile lock is only here: AcquireVolatile makes it, Release ends it at once, and DropInFlight
// forgets it. It keeps others out, and proves nothing.
//
// A span lock is a volatile lock of all keys of a span, of those too that do not exist yet
// (span.go).
//
// Every replica applies; only a leader acquires locks, marks them as released, and has others wait.
//
// INVARIANT: of a key at most one change is in flight. A request that wants another one waits, even
// one of the lock's own transaction.
//
// INVARIANT: a lock that is not volatile leaves the table only when its release is applied. So a
// caller that finds a key free here, and then reads the engine, sees what the transaction wrote.
//
// Waiters are first in, first out: what waits for one key comes back in the order in which it came.
// The table bounds nothing itself: it counts, and its owner refuses.
package locks

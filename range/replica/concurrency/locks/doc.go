// Package locks is the lock table of one partition: which keys transactions have locked, and which
// requests wait for these locks. It is in memory only, and pure: no clock, no goroutine, no I/O, no
// lock of its own. A stored lock is package txn's Lock; the table holds what a replica knows of
// those without reading the engine.
//
// A transaction is identified by its id and its anchor. Clients choose ids, and learn the ids of
// others, so partitions may have locks with one id and different anchors, and a merge may bring
// them together. A decision at one anchor says nothing about locks that name another anchor.
//
// A key has at most one lock, of one transaction. The lock has up to two states: the applied one,
// which is in the engine, and the proposed one, which an entry on its way will put in its place. A
// lock may also be releasing: then an entry on its way releases it. A change in flight ends when
// its entry is applied (Apply, Release), or when changes in flight are given up (DropInFlight).
//
// A volatile lock is in this table only: AcquireVolatile makes it, Release ends it at once, and
// DropInFlight forgets it. It keeps others out, and proves nothing.
//
// A span lock is a volatile lock of all keys of a span, including keys that do not exist yet
// (span.go).
//
// Every replica applies changes; only a leader acquires locks, marks them as released, and makes
// requests wait.
//
// INVARIANT: at most one change of a key's lock is in flight. A request that wants another change
// waits, even a request of the lock's own transaction.
//
// INVARIANT: a lock that is not volatile leaves the table only when its release is applied. So a
// caller that finds a key free here, and then reads the engine, sees what the transaction wrote.
//
// Waiters are first in, first out: requests that wait for one key return in the order in which they
// came. The table has no bounds of its own: it counts, and its owner refuses.
package locks

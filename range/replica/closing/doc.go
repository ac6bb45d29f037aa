// Package closing is what a replica knows of closed timestamps.
//
// A leader promises that nothing at or below a timestamp is written, or locked, any more: it closes
// the timestamp. It lies the keyspace's closed lag behind the leader's physical clock, so that
// hardly a write has to move because of it. A follower that has applied all that was proposed
// before the promise answers reads at or below it (stale reads of its own state), without asking a
// leader.
//
// A promise goes out with each entry of the log (proposal.Entry.Closed), and beside the log when
// there is nothing to replicate: with the heartbeats of a group that is awake, and for all groups
// together that sleep (package host). Beside the log it names an index; it counts for a follower
// that has applied the log up to that.
//
// # Invariants
//
//   - What is promised holds for every later leader. A promise is made like a read is served: the
//     clock is read, and after that the lease is looked at, so no other leader has begun before the
//     clock was read. One that begins later has its low-water mark above that clock's reading, and
//     so above what is promised, which is not above the clock.
//   - A partition that is frozen promises nothing: what consumes it goes by what the freeze has
//     closed.
//   - Within the leadership each later write and lock asks for the floor under the lock under which
//     promises are made. What is evaluated when a promise is made asks later, or is in the entry
//     that brings it; what is in flight lies before that entry in the log. A promise beside the log
//     is made only when nothing is in flight.
//   - What is closed while a group sleeps is promised before anything is evaluated.
//
// The replica keeps the first three: it says what may be promised, and when.
//
// # Locks
//
// Timestamps has no lock. Its owner guards it by the lock under which the owner chooses timestamps
// of writes.
//
// # Imports
//
// hlc and range/group. Nothing of range/replica.
package closing

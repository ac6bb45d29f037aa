// Package closing keeps the closed timestamps of a replica.
//
// A leader closes a timestamp: it promises that nothing at or below it is written, or locked, any
// more. The closed timestamp lies the keyspace's closed lag behind the leader's physical clock, so
// that hardly a write has to move because of it. A follower that has applied all that was proposed
// before the promise answers reads at or below it (stale reads of its own state), without asking a
// leader.
//
// A promise goes out with each entry of the log (proposal.Entry.Closed). When there is nothing to
// replicate it goes out beside the log: with the heartbeats of a group that is awake, and together
// for all groups that sleep (package host). Such a promise names an index; it counts for a follower
// that has applied the log up to that index.
//
// # Invariants
//
//   - A promise holds for every later leader. It is made like a read is served: the clock is read,
//     and after that the lease is checked, so no other leader has begun before the clock was read.
//     A later leader has its low-water mark above that reading of the clock, and so above the
//     promised timestamp, which is not above the clock.
//   - A frozen partition promises nothing: the partition that consumes it relies on what the freeze
//     has closed.
//   - Within the leadership each later write and lock asks for the floor under the lock under which
//     promises are made. A write that is being evaluated when a promise is made asks later, or is
//     in the entry that brings the promise; a write in flight lies before that entry in the log. A
//     promise beside the log is made only when nothing is in flight.
//   - What is closed while a group sleeps is promised before anything is evaluated.
//
// The replica keeps the first three: it decides what may be promised, and when.
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

// Package history records what clients asked of a key-value store and what they were told, and
// checks that a single copy of every key, used by one client at a time, could have given those
// answers (linearisability).
//
// A Recorder numbers the beginnings and endings of operations with one counter, so that "ended
// before the other began" is exact in this process, also in a test whose clock stands still. Check
// takes the operations apart by key, hands each key to porcupine, and for a key that fails finds
// the shortest beginning of its history that fails already: what to read first.
//
// INVARIANT: an operation whose outcome the client does not know is never taken for failed. It may
// take effect at any moment from its call to the end of the history, once or never. An operation
// that is known to have had no effect is in no history.
//
// Two weaker checks cost no memory per operation, for loads too large to record: Monotonic (a key
// that one writer counts up: no read may be older than what was known when it began) and Counter
// (increments whose sum must lie in an interval that the unknown outcomes span).
//
// The package starts no goroutine that outlives a call, and imports nothing of Tidemark: the same
// checks serve the simulated cluster and real processes. Inside a testing/synctest bubble record
// there, and check outside.
package history

// Package history records the operations of clients on a key-value store with their answers. It
// checks linearisability: whether a single copy of every key, used by one client at a time, could
// have given the answers.
//
// A Recorder numbers the beginnings and endings of operations with one counter. So "ended before
// the other began" is exact in this process, even in a test whose clock stands still. Check groups
// the operations by key, and hands each key to porcupine. For a key that fails, Check finds the
// shortest failing prefix of its history.
//
// INVARIANT: an operation of unknown outcome is never treated as failed. It may take effect at any
// moment from its call to the end of the history, once or never. The check leaves out operations
// that certainly had no effect.
//
// Two weaker checks need no memory for each operation, for loads that are too large to record.
// Monotonic is for a key that one writer increments: no read may be older than what was known when
// the read began. Counter is for increments: their sum must lie in the interval that the unknown
// outcomes allow.
//
// The package starts no goroutine that outlives a call, and imports nothing of Tidemark: the same
// checks serve the simulated cluster and real processes. Inside a testing/synctest bubble, record
// there and check outside.
package history

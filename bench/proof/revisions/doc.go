// Package revisions checks the answers of a store with revisions to its clients. Keys of such a
// store have a creation revision, a modification revision and a version. A transaction compares,
// and then does one of two lists of operations at one revision. Reads are made with or without a
// quorum. The etcd v3 API promises all of this.
//
// A Recorder records the beginnings and endings of the operations of many clients. Check decides
// whether one copy of the store, used by one client at a time, could have given all answers, in an
// order that agrees with real time. (Package porcupine searches for the order.) Each operation that
// wrote has a higher revision than all operations before it. An operation that did not write has no
// revision of its own. Other clients may write other keys of the same store, so revisions may be
// missing from the history. Serializable reads are checked separately: each must show the state at
// exactly the revision in its answer, which may be old but not from the future.
//
// # Unknown outcomes
//
// INVARIANT: an operation of unknown outcome is never treated as failed. It may take effect at any
// moment from its call to the end of the history, once or never. Every value is written once. So an
// operation whose value was seen has taken effect, at the revision that came with the value.
// Numbers that no client has learned are unknown in the model, and agree with any answer.
//
// The package starts no goroutine that outlives a call, and imports nothing of Tidemark or etcd:
// the same checks serve the simulated cluster and real processes. Inside a testing/synctest bubble,
// record there and check outside.
package revisions

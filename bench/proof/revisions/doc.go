// Package revisions checks what the clients of a store with revisions were told: keys that have a
// creation and a modification revision and a version, transactions that compare and then do one of
// two lists of operations at one revision, and reads with or without a quorum. That is what the
// etcd v3 API promises.
//
// A Recorder takes the operations of many clients as they begin and end. Check then says whether
// one copy of the store, used by one client at a time, could have given all the answers in an order
// that agrees with real time (porcupine searches for one), with a revision for each operation that
// wrote, each higher than all before it, and none for one that did not. Others may write other keys
// of the same store, so revisions may be left out. Serializable reads are checked apart: each shows
// the state of exactly the revision that it names, which may be old but not from the future.
//
// # Outcomes that are not known
//
// INVARIANT: an operation whose outcome the client does not know is never taken for failed. It may
// take effect at any moment from its call to the end of the history, once or never. Every value is
// written once, so an operation whose value was seen has had its effect, at the revision that came
// with the value. What no client saw gets unknown numbers in the model, which agree with any
// answer.
//
// The package starts no goroutine that outlives a call, and imports nothing of Tidemark or etcd:
// the same checks serve the simulated cluster and real processes. Inside a testing/synctest bubble
// record there, and check outside.
package revisions

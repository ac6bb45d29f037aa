// Package txn is the protocol of transactions: what is stored of a transaction, the rules by which
// its coordinator decides, and how requests reach that coordinator.
//
// # What is stored
//
// A transaction that writes to one partition leaves only its versions. Any other transaction
// stores, until it is over:
//
//   - A Lock for each key that it writes, beside that key (LockKey). It is the intent: it holds the
//     value, which becomes a version only when the transaction has committed. A key has at most
//     one lock.
//   - A Record in the partition of the first key that it writes, its anchor (RecordKey). That
//     partition's leader is the coordinator. The first request that needs the record makes it: the
//     client's heartbeat, a push, or the end.
//
// Both are anchored at internal keys, so that a split leaves each on the right side. Nothing else
// of a transaction is on disk. The record of a decided transaction names its participants: the
// spans of keys in which it has locks. It names no partitions.
//
// # The rules
//
// The functions that decide are pure: from the present record, the request and the coordinator's
// clock they make the new record and the answer. The evaluator of the coordinator calls them in the
// order of the partition's log.
//
// INVARIANT: a record that says COMMITTED or ABORTED never changes. Only garbage collection removes
// it, and a request that would make it anew is refused, because the attempt began below the
// threshold of that collection.
//
// INVARIANT: a transaction never commits at or below a timestamp above which it was told to stay
// (Record.Timestamp while PENDING).
//
// INVARIANT: a transaction whose heartbeats are heard is aborted only by itself or by an older one.
// So of any set of transactions that wait for each other the oldest goes on: there is no deadlock.
//
// Data from disk or network is decoded strictly: one encoding for each value, and an error that
// says what is wrong with any other.
//
// The package imports hlc, rpc, range/keys and range/route; never range/replica, range/node or kv.
package txn

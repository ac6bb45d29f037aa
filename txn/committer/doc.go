// Package committer is the client's side of transactions: it validates the reads and commits the
// writes of a transaction, over any number of partitions. The coordinator is the partition of the
// anchor, which stores the transaction's record. The coordinator decides; the committer asks for
// the decision.
//
// # How a transaction commits
//
// The caller (package kv) runs the reads itself, all at one timestamp, and buffers the writes.
// Commit then takes one of two ways:
//
//   - One phase. If all keys read, written and locked lie in one partition, and are few: one
//     request validates the reads and writes everything, in one consensus round.
//   - Two phases. The writes are prepared in all partitions at the same time, in chunks; each
//     answer names the lowest timestamp at which its part can be written. The commit timestamp is
//     the highest of them. Written keys that were read too are compared when they are prepared;
//     keys that were only read are refreshed to the commit timestamp. Both fail if another
//     transaction wrote in between. Then the record of the transaction is turned to COMMITTED, in
//     the partition of the anchor; that is the decision, and the caller is answered. The intents
//     are resolved in the background.
//
// A reader may have pushed the transaction, which shows in the answer to the decision
// (TRANSACTION_PUSHED): then the reads are refreshed to a timestamp above that, and the decision is
// asked for again.
//
// # What is certain
//
// INVARIANT: a commit is reported only if the coordinator, or the one partition, said so.
//
// INVARIANT: a failure other than ErrOutcomeUnknown is reported only if the transaction is not
// committed and never will be: no request to commit it was sent, or each that was sent is refused
// for good (the record is aborted, or has a bound above the timestamps of all).
//
// INVARIANT: a transaction is aborted (EndTransaction without commit) only if that holds.
//
// # Goroutines
//
// A Committer owns one goroutine that sends heartbeats while transactions hold locks, and at most
// maxBackground goroutines that resolve intents and abort. When all slots are taken, the caller
// waits slotTime for one; then the work is left to requests that meet the locks. Close waits for
// all goroutines.
//
// A Transaction is used by one goroutine at a time. The package imports hlc, rpc, range/keys and
// range/route; never kv.
package committer

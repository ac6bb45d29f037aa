// Package fakeserver plays the servers of a cluster for tests of what talks to them: the SDK, the
// committer of transactions, and the workloads of bench/proof. There is no Raft and no disk in it.
//
// It has two layers:
//
//   - Store is versions, locks and transaction records in maps, and what requests do with them
//     (Execute). It is as naive as can be, so that a reader sees that it is right. Mistakes make it
//     wrong on purpose.
//   - Cluster is nodes that serve the real protocol over an in-memory network in front of one
//     Store. A test scripts what goes wrong with single requests (Play, Fault), moves leaders
//     (Lead), splits and merges partitions (Split, Merge) and ends nodes (Kill).
//
// A Store without a Cluster serves tests that have a network of their own.
//
// # Transactions
//
// With Store.LockWaits locks are as in the product: a writer waits for them, an older transaction
// wounds a younger one, a silent one is abandoned, and locks stay until they are resolved or met.
// Without it nothing ever waits: a writer that meets a lock is refused with a conflict, and a
// decision turns all locks of its transaction into versions at once.
//
// Only tests import the package. It must not import kv, nor the packages of any server.
package fakeserver

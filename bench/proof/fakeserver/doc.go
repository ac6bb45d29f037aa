// Package fakeserver plays the servers of a cluster, for tests of code that calls servers: the SDK,
// the committer of transactions, and the workloads of bench/proof. It has no Raft and no disks.
//
// It has two layers:
//
//   - Store has versions, locks and transaction records in maps, and executes requests on them
//     (Execute). It is as simple as possible, so that a reader sees that it is right. Mistakes make
//     it wrong on purpose.
//   - Cluster is nodes that serve the real protocol over an in-memory network in front of one
//     Store. A test scripts faults of single requests (Play, Fault), moves leaders (Lead), splits
//     and merges partitions (Split, Merge) and ends nodes (Kill).
//
// A Store without a Cluster is for tests that have their own network.
//
// # Transactions
//
// With Store.LockWaits, locks work as in the product: a writer waits for a lock, an older
// transaction wounds a younger one, a silent transaction is abandoned, and locks stay until they
// are resolved or met by another request. Without LockWaits no request waits: a writer that meets a
// lock is refused with a conflict, and a decision turns all locks of its transaction into versions
// at once.
//
// Only tests import the package. It must not import kv, nor the packages of any server.
package fakeserver

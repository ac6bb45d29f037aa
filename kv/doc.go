// Package kv is the Go SDK of Tidemark.
//
// # Getting started
//
//	client, err := kv.Open(ctx, []string{"127.0.0.1:7400"})
//	if err != nil { ... }
//	defer client.Close()
//
//	users, _, err := client.CreateKeyspaceIfMissing(ctx, "users", kv.Hash(32))
//	version, err := users.Put(ctx, []byte("ada"), []byte("Lovelace"))
//	pair, err := users.Get(ctx, []byte("ada"))
//	for pair, err := range users.Scan(ctx, kv.Prefix([]byte("a")), kv.Limit(100)) { ... }
//
// A Client is made once and shared: its methods, and those of its keyspaces, may be called from any
// number of goroutines. Calls that are made at the same time share messages. The addresses of any
// servers of the cluster can be used as endpoints. The client finds the other servers, and follows
// them as they come and go.
//
// # What is guaranteed
//
//   - A write that returned without an error is on the disks of a majority of the partition's
//     replicas.
//   - Get, Put, Delete, CompareAndSwap and Increment are linearisable. So are Batch, BatchGet,
//     Count and Scan if all of their keys are in one partition.
//   - BatchPut and Modify are transactions of one call: all of their effects happen at one moment,
//     or none of them.
//   - BatchGet, Count and Scan over several partitions read a snapshot of one moment. The snapshot
//     has every write that was acknowledged before the call began, and no write from after that
//     moment, in any partition. Neither the load of other clients nor changes of leaders make them
//     fail.
//   - A client never goes back in time: its later reads see everything that it has seen before
//     (Client.Timestamp, Client.Observe). Reads of the past and reads of any replica are
//     exceptions.
//   - A value that was written with a TTL exists for reads below its expiry, and does not exist for
//     reads at or above it, whatever the clocks show.
//   - A write is applied at most once, no matter how often the client had to send it.
//
// # Transactions
//
//	at, err := client.Update(ctx, func(tx *kv.Txn) error {
//		from, err := tx.Get(ctx, accounts, []byte("ada"))
//		...
//		return tx.Put(accounts, []byte("ada"), less)
//	})
//
// Update runs a function in a transaction over any keys of any keyspaces, and runs it again after
// conflicts. All of its reads and writes take effect as if at one moment at which nothing else
// happened: transactions are serialisable. Its writes become visible together, at the timestamp
// that Update returns. View reads without locks. SnapshotAt reads the past. Begin is for callers
// that end transactions themselves. Without CommitWait, if one transaction begins after another was
// acknowledged, it is later in the order of transactions provided that both have a key in common,
// or belong to one client. With CommitWait, or with keyspaces that were created with CommitWait,
// that is true for any two transactions.
//
// # Time travel
//
// Every value has a version: the timestamp of its write. Get, BatchGet, Count and Scan with At read
// the past, as far back as the keyspace's GC window reaches. Earlier timestamps fail with
// ErrTimestampTooOld.
//
// # Reads at the nearest replica
//
// Nearest, MaxStaleness, AnyStaleness and ReadYourWrites let any replica answer a read, without the
// leader, with the state of a moment in the recent past. ReadAt reports the moment, and how old it
// is. The description of each option says what it guarantees. Locality says where the client is.
//
// # When things go wrong
//
// Calls retry temporary failures until their context ends: a node that failed, an election, an
// overloaded server, a partition that moved. A context without a deadline gets the client's request
// timeout (30 seconds, RequestTimeout).
//
// Errors are *Error: a sentence that says what happened, to which key and partition, and what to
// do. errors.Is recognizes the kind of an error: ErrNotFound, ErrUnavailable, ErrDiskFull and so
// on. One kind needs special care, ErrOutcomeUnknown: the call ended before there was a definite
// answer, so the write may have been executed, or may still be executed. Any other error of a write
// means that the write was not executed. (For a call that ended with its context, errors.Is also
// finds context.DeadlineExceeded or context.Canceled.)
//
// # Administration
//
// Package admin (kv/admin) shows the nodes, partitions and members of a cluster, and changes where
// replicas and leaders are.
//
// # Memory
//
// A call only reads the keys and values that it is given, and only until it returns. Slices that a
// call returns belong to the caller, which may keep and change them. They share no memory with
// anything else. A Scan holds a few pages, however long it runs.
package kv

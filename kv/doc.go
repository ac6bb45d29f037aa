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
// number of goroutines, and calls made at the same time travel together. Any servers of the cluster
// will do as endpoints; the client finds the others itself, and follows them as they come and go.
//
// # What is guaranteed
//
//   - A write that returned without an error is on the disks of a majority of the partition's
//     replicas.
//   - Get, Put, Delete, CompareAndSwap and Increment are linearisable. So are Batch, BatchGet,
//     Count and Scan when all they touch is in one partition.
//   - BatchPut and Modify are transactions of one call: all of it happens at one moment, or none.
//   - BatchGet, Count and Scan over several partitions read a snapshot of one moment: they see
//     every write that was acknowledged before they began, and none that came after that moment, in
//     any partition. Neither other clients' load nor changes of leaders end them.
//   - A client never goes back in time: what it has once seen, it sees in all later reads
//     (Client.Timestamp, Client.Observe), but for those that ask for the past, or take what a
//     replica has.
//   - A value that was written with a TTL is there for reads below its expiry, and absent for reads
//     at or above it, whatever any clock shows.
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
// Update runs a function in a transaction over any keys of any keyspaces, and runs it again when
// others were in the way. Everything that it reads and writes happens as if at one moment at which
// nothing else happened: transactions are serialisable. Its writes appear together, at the
// timestamp that Update returns. View reads without locks, SnapshotAt reads the past, Begin is for
// callers that end transactions themselves. CommitWait, or keyspaces created with CommitWait, add
// that of any two transactions, the one that began after the other was acknowledged comes later,
// whichever clients they belong to and whatever keys they touch; without it that holds for every
// key, and within each client.
//
// # Time travel
//
// Every value has a version: the timestamp of its write. Get, BatchGet, Count and Scan with At read
// the past, as far back as the keyspace's GC window reaches (ErrTimestampTooOld beyond it).
//
// # Reads at the nearest replica
//
// Nearest, MaxStaleness, AnyStaleness and ReadYourWrites let any replica answer a read, without the
// leader, with what was there at a moment of the recent past; ReadAt tells which, and how old it
// is. Each says what it promises. Locality says where the client is.
//
// # When things go wrong
//
// Calls retry transient failures (a node that died, an election, an overloaded server, a partition
// that moved) by trying again until their context ends. A context without a deadline gets the
// client's request timeout (30 seconds, RequestTimeout).
//
// Errors are *Error: a sentence that says what happened, to which key and partition, and what to
// do. What kind of error it is, errors.Is tells: ErrNotFound, ErrUnavailable, ErrDiskFull and so
// on. One of them needs thought, ErrOutcomeUnknown: the call ended before there was a definite
// answer, so the write may have been executed, or may be even later. Any other error of a write
// means that it was not executed. (A call that ends with its context says so as well: errors.Is
// finds context.DeadlineExceeded or context.Canceled in addition.)
//
// # Administration
//
// Package admin (kv/admin) shows the nodes, partitions and members of a cluster, and changes where
// replicas and leaders are.
//
// # Memory
//
// Keys and values handed to a call are only read, and only until it returns. Slices that a call
// returns belong to the caller, which may keep and change them; they share memory with nothing. A
// Scan holds a few pages, however long it runs.
package kv

// Package command is what a partition can be asked: a Command for each kind of request, in a file
// of its own or with its like (scan.go, transaction_record.go, node_commands.go). A Command says
// what the request touches, whether it is valid, how it is evaluated, and how it is answered;
// package request has the parts that commands share. A request finds its command through the
// registry (Of); nothing else switches over the types of requests.
//
// Nothing in here knows a replica. A read is a function of a View: the state at a timestamp. A
// write is a function of an Evaluation: the applied state, the pending writes on top of it, and a
// reading of the clock, and for transactions the locks and records (Coordination). So each command
// is tried with an engine in memory and nothing else. The replica does the rest, alike for all: it
// proves leadership, waits for pending writes, chooses the timestamp of a write or of locks, has
// them replicated, and answers when they are applied.
//
// A Prepare is three things, each with a file: it acquires locks (prepare.go), holds spans
// (hold_spans.go), or commits a transaction in one phase (one_phase.go).
//
// # To add a command
//
// An atomic increment, for example, is three pieces:
//
//  1. The protocol. rpc/kvpb/kv.proto: IncrementRequest, IncrementResponse, and a case in both of
//     the oneofs Request.command and Response.result; then `make generate`.
//  2. The command. increment.go registers a Command under the request's case. A write has Body,
//     Footprint, CheckWrite and Evaluate, a read CheckRead and Read instead of the last two. Every
//     command has Permissions: the rights that its client needs. The other fields are for what is
//     unusual. Evaluate looks the keys up with Prior (PriorOfBlind if the value does not matter),
//     looks for an earlier attempt of the same request with Replayed, so that a retry takes effect
//     once, and then says what comes of it: Write, Duplicate, NothingDone, Answer or Refuse. If
//     the answer tells of what was there before, HoldSeen has it wait for commits that are not to
//     be seen yet.
//  3. The method of the SDK. kv/increment.go: Keyspace.Increment sends the request, and
//     Txn.Increment does the same inside a transaction by what a transaction has anyway, reads
//     under a lock and buffered writes.
//
// TestEveryRequestHasACommand says what is missing. A write belongs into
// TestRetriesFindTheirVersion too. A command that is to be tried from a shell gets a file in
// cmd/tidemark.
//
// # Imports
//
// hlc, rpc and its protobuf packages, txn, range/keys, range/engine, range/mvcc,
// range/replica/concurrency (as a lender of locks, Coordination.Locks) and range/replica/proposal.
package command

// Package rpc is the server's side of the communication between Tidemark's processes. A [Server]
// answers at one address to gRPC and to the connections of clients and peers, with or without TLS.
//
// # Data flow
//
// A client (package client) keeps one connection to each node. The node's [BatchServer] hands the
// requests of a message to its Take function, and replies, from any goroutine, leave together by
// the stream's outbox. Package peer handles Raft messages and snapshots.
//
//	caller ─┐                         ┌─ Take ─ reply ─┐
//	caller ─┼─ outbox ── connection ──│ BatchServer    ├─ outbox ── connection ─ receiver ── callers
//	caller ─┘                         └─ Take ─ reply ─┘
//
// A connection begins with a hello (package wire) that identifies its opener and says what it is
// for. Calls of gRPC services may come on a client's connection as well ([CallServer]). Clients in
// other languages use KV.Batch over gRPC (grpc_batch.go), whose messages are passed to a connection
// within the process.
//
// # What unauthenticated clients can do
//
// Every connection and stream must identify its opener and is refused otherwise, with a status that
// says why (package authn). Connections, messages, the parts of a message, requests in flight and
// responses not read have limits (package limit), and reaching one gives a status that says so.
//
// # Invariants
//
//   - No lock is held over sending, receiving or Handle. Lock order: a connection's own lock before
//     its outbox's lock; never two of a kind.
//   - Everything queued is bounded in bytes: a server stops reading requests.
//   - Once a request was delivered on a client's newer stream, none of its older streams delivers
//     another (stream_fencing.go).
//   - Requests are taken in the order of a stream; later requests overtake work that takes long
//     (readloop_steal.go).
//   - The fields of a decoded message may alias the buffer it was decoded from (package wire):
//     data that outlives the request must be copied.
//   - Nothing outlives Close.
//
// The package imports its rooms below rpc, and nothing else of Tidemark. No client imports it.
package rpc

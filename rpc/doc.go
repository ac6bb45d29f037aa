// Package rpc is how Tidemark's processes talk. Clients' batches and the Raft messages of peers
// travel on connections of package transport, everything else on gRPC, with a codec and options of
// its own.
//
// # Data flow
//
// A client keeps one [BatchConn] to each node. Requests of all its goroutines are marshalled
// straight into one pending buffer, which leaves as one BatchRequest; the node's [BatchServer]
// hands the requests to its Take function, and replies, from any goroutine, are marshalled into the
// stream's pending buffer and leave as one BatchResponse. Between servers a [PeerTransport] carries
// the Raft messages of all groups in the same manner, one connection per pair of hosts and [Class],
// and each snapshot on a gRPC stream of its own.
//
//	caller ─┐                         ┌─ Take ─ reply ─┐
//	caller ─┼─ outbox ── connection ──│ BatchServer    ├─ outbox ── connection ─ receiver ── callers
//	caller ─┘                         └─ Take ─ reply ─┘
//
// All senders share one mechanism, package outbox.
//
// A [Server] answers at one address to gRPC and to the connections of clients and peers, with or
// without TLS. A connection begins with a hello (hello.go) that identifies its opener and says what
// it is for. The other side of a connection is taken for gone after two seconds of silence, or
// three on the accepting side (package transport), and so is that of a gRPC connection, which a
// [Dialer] makes and watches (liveness.go).
//
// Clients in other languages speak KV.Batch over gRPC (grpc_batch.go), whose messages are passed to
// a connection within the process.
//
// # What can go wrong, and what the sender hears
//
//   - A request: [ErrStreamBroken] says whether it can have left; the outcome is then unknown, or
//     certain not to be.
//   - A Raft message: nothing but HandleUnreachable. Raft sends again.
//   - A snapshot: an error, which has [ErrSnapshotRefused] in its chain if the receiver did not
//     want it.
//
// # What strangers can do
//
// Every connection and stream must identify its opener (kvpb.Hello; peer_identity.go) and is
// refused otherwise, with a status that says why. Connections, messages, the parts of a message
// (package wire), requests in flight and responses not read have limits, and reaching one gives
// a status that says so. There is no authentication here but TLS's.
//
// # Invariants
//
//   - No lock is held over sending, receiving, Handle or a peer handler. Lock order: a stream's or
//     connection's own lock before its outbox's lock; never two of a kind.
//   - Everything queued is bounded in bytes: a client waits with its context, a peer's message is
//     dropped (and reported), a server stops reading requests.
//   - Once a request was delivered on a client's newer stream, none of its older streams delivers
//     another (batch_server.go).
//   - Requests are taken in the order of a stream; work that takes long is overtaken by what comes
//     behind it (reader_handoff.go).
//   - What a decoded message holds may alias the buffer it was decoded from. That buffer is never
//     reused, so the slices stay valid; but one retained slice retains the whole message: what
//     outlives the request must be copied.
//   - Nothing outlives Close.
//
// The package imports hlc, metric, range/admission and the generated protocol packages, and nothing
// else of Tidemark.
package rpc

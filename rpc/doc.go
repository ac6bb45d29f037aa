// Package rpc is how Tidemark's processes talk: gRPC with a codec, options and streams of its own making.
//
// # Data flow
//
// A client keeps one [BatchConn] to each node. Requests of all its goroutines are marshalled straight into one pending
// buffer, which leaves as one BatchRequest; the node's [BatchServer] hands the requests to its Handle function, and replies,
// from whatever goroutine, are marshalled into the stream's pending buffer and leave as one BatchResponse. Between servers
// a [PeerTransport] carries the Raft messages of all groups in the same manner, one stream per pair of hosts and [Class],
// and each snapshot on a stream of its own.
//
//	caller ─┐                           ┌─ Handle ─ reply ─┐
//	caller ─┼─ outbox ── gRPC stream ── │ BatchServer      ├─ outbox ── gRPC stream ── receiver ── callers
//	caller ─┘                           └─ Handle ─ reply ─┘
//
// All senders share one mechanism, the outbox (outbox.go): whoever has something to say marshals it under the outbox's lock,
// and if nothing is on its way sends it there and then, otherwise leaves it to the outbox's goroutine, which sends all that has
// gathered as one message. So a lone caller pays no goroutine switch, and many callers share messages.
//
// Raft's messages leave their stream for a connection beside it, a lane, as soon as that is there (lane.go), and a client's requests with their
// answers once there have been some (batch_lane.go).
//
// Between the two of every pair of processes is one gRPC connection, made and watched by a [Dialer]: its other side is taken for gone after two
// seconds of silence (liveness.go), and then all streams on it end, with UNAVAILABLE. A server notices in about three, by gRPC's keepalive.
//
// # What can go wrong, and what the sender hears
//
//   - A request: [ErrStreamBroken] says whether it can have left; the outcome is then unknown, or certain not to be.
//   - A Raft message: nothing but HandleUnreachable. Raft sends again.
//   - A snapshot: an error, which has [ErrSnapshotRefused] in its chain if the receiver did not want it.
//
// # What strangers can do
//
// A connection that is to be a lane needs a token that was given to a stream. Every stream must say who it is (Hello; the metadata in peer_identity.go) and is refused otherwise. Streams, messages, the parts of a
// message (density.go), requests in flight and responses not read have limits, and reaching one gives a status that says so.
// There is no authentication here but TLS's.
//
// # Invariants
//
//   - No lock is held over SendMsg, RecvMsg, Handle or a peer handler. Lock order: a stream's or connection's own lock before
//     its outbox's lock; never two of a kind.
//   - Everything queued is bounded in bytes: a client waits with its context, a peer's message is dropped (and reported), a
//     server stops reading requests.
//   - Once a request was handed over on a client's newer stream, none of its older streams hands over another (batch_server.go).
//   - Requests are taken in the order of a stream; work that takes long is overtaken by what comes behind it (relief.go).
//   - What a decoded message holds may alias the buffer it was decoded from. That buffer is never reused, so the slices stay
//     valid; but one retained slice retains the whole message: what outlives the request must be copied.
//   - Nothing outlives Close.
//
// The package imports hlc, metric, range/admission and the generated protocol packages, and nothing
// else of Tidemark.
package rpc

// Package client is the side of a connection that asks: a Dialer makes and watches connections, a
// BatchConn carries the requests of many goroutines to one node over one stream, and Calls are
// requests of one goroutine at the same time.
//
// # What a caller hears when something goes wrong
//
// *ErrStreamBroken says whether the request can have left this process. If it can, the outcome is
// unknown; if not, the request had no effect. ErrNotSent in the chain says that the request was not
// sent.
//
// # Invariants
//
//   - What waits to be sent is bounded; a caller waits with its context.
//   - A connection whose other side is silent for two seconds is broken.
//   - Nothing outlives Close.
//
// A stream keeps its state under the lock of its outbox, which is taken after BatchConn's own; a
// Dialer has a lock of its own, taken alone. No lock is held while a connection is made, read or
// written.
//
// The package imports hlc's wire form, outbox, transport, nonblock, wire and the protocol of the
// data path, and no server.
package client

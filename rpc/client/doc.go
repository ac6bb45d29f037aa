// Package client is the client's side of a connection: a Dialer makes and watches connections, a
// BatchConn carries the requests of many goroutines to one node over one stream, and Calls holds
// several requests of one goroutine in flight.
//
// # Errors
//
// *ErrStreamBroken says whether the request may have left this process. If so, the outcome is
// unknown; if not, the request had no effect. An error that wraps ErrNotSent says that the request
// was not sent.
//
// # Invariants
//
//   - Requests that wait to be sent are bounded; further callers wait with their context.
//   - A connection whose other side is silent for two seconds is closed.
//   - Nothing outlives Close.
//
// A stream keeps its state under the lock of its outbox, which is taken after BatchConn's own; a
// Dialer has a lock of its own, taken alone. No lock is held while a connection is made, read or
// written.
//
// The package imports hlc's wire form, outbox, transport, nonblock, wire and the protocol of the
// data path, and no server.
package client

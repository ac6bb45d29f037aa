// Package limit bounds what clients take of a server: the memory of their requests (RequestMemory),
// of responses that they have not read (ResponseBudget) and of messages that are still being
// received (RecvBudget), the connections (NewListener), and processor time while that is short
// (ConnThrottle). All of it is shared among principals by package quota, so that none takes what
// others need.
//
// # Invariants
//
//   - What is taken is given back once: when it was sent, when its call or connection is over, or
//     at the latest when nothing refers to it any more.
//   - Servers of the cluster take nothing, but for what they pass on for clients.
//
// Each type owns its state and its lock. RecvBudget.mu is not held while a connection reads, writes
// or is closed; under it only package quota's locks are taken. A Credit belongs to one stream and
// has no lock: the stream's holds.
//
// The package knows neither requests nor what a server does with them. It imports authn, quota,
// nonblock, wire and metric.
package limit

// Package abuse plays hostile clients against the ports of servers: what is malformed, oversized,
// half-open, slow, forged, replayed, or simply too much. Each act (acts.go) does one of these for a
// while; Run draws acts from a seed, several at a time.
//
// Acts come from loopback addresses of their own (127.0.0.2 and up) where there are any, so that
// they are other hosts than honest clients. With TLS a stranger may have no certificate, or one of
// a client.
//
// An act that finds something says so by an error: a stranger was taken for a server. That servers
// live, answer honest clients, and lose nothing is for the caller to see.
package abuse

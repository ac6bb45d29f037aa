// Package abuse plays hostile clients against the ports of servers: malformed, oversized,
// half-open, slow, forged and replayed input, or too much of it. Each act (acts.go) does one of
// these for a while. Run draws acts from a seed, several at a time.
//
// Acts use their own loopback addresses (127.0.0.2 and up) if the machine has them, so that they
// look like other hosts than the honest clients. With TLS a stranger has no certificate, or the
// certificate of a client.
//
// An act reports a finding by an error: for example, a stranger was accepted as a server. The
// caller checks that servers live, answer honest clients, and lose no data.
package abuse

// Package coreclient reaches the core from anywhere. A Client finds the leader among the members,
// follows hints (package hint), and retries until the caller's context ends. Data nodes use it. The
// service Cluster uses it too, on every server that does not lead the core, to forward calls.
//
// A call may reach the core several times. So each request either can be repeated without harm, or
// carries a token.
//
// If no leader answers a call in time, the error is an UnavailableError. It says which members were
// silent, and why.
package coreclient

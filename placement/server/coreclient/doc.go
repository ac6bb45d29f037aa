// Package coreclient reaches the core from anywhere. A Client finds the leader among the members,
// follows hints (package hint), and tries again until the caller's context ends. Data nodes use it,
// and so does the service Cluster on every server that does not lead the core: it forwards calls.
//
// A call may reach the core several times. So each of its requests can be repeated without harm, or
// carries a token.
//
// The error of a call that no leader has answered in time is an UnavailableError. It says which
// members were silent, and why.
package coreclient

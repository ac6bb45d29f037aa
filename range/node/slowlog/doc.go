// Package slowlog watches the requests that a node answers: it keeps those that took long, and
// counts where the time of requests goes.
//
// # Data flow
//
// The node gives each request a timing (Log.Begin). When a replica answers the request, it tells
// the log (config.Watch). A request that took at least the threshold becomes an entry. One in 64
// requests is counted in the histograms of parts, slow or not. Administrators read the entries with
// a request to the node (Log.List).
//
// # Bounds
//
// The log keeps the newest 256 entries, and the 64 slowest of the last hour. Keys are cut to 128
// bytes, so that an entry takes about 1 KiB at most. If everything is slow, one entry a millisecond
// is made, besides those that are slower than what is kept.
//
// # Invariants
//
//   - An entry is not changed after it was made. It aliases nothing of the request.
//   - The lock of the log is held for moving pointers, never while an entry is made.
//
// The package knows requests and commands, and nothing of replicas and nodes.
package slowlog

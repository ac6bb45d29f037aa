// Package admit decides when the requests of clients begin on a node: a Gate has a queue
// (range/admission/workqueue) in which requests wait while the node is asked for more than it can
// bear.
//
// # Data flow
//
//	Submit     a message of a client: its requests begin at once, or wait in the queue
//	Run        takes requests out of the queue when others are answered, and begins them
//	Answered   what a request that has waited has cost is charged to its tenant
//
// The tenant of a request is its user and its keyspace.
//
// # What does not wait
//
// Requests that end something for which others wait never wait: ends, heartbeats, refreshes and
// resolutions of transactions, and pushes. Nor do readings of the clock, and lists for
// administrators. A reader of changes waits for changes and not for the node: it does not count.
//
// # Order
//
// A client may send a request again, by a new stream, while the first attempt is in the queue. The
// attempt must not run after its retry (range/replica/concurrency/attempts.go). It does not: both
// have the same tenant and the same priority, the queue keeps the order of those, and one goroutine
// begins what it takes from the queue. The tenant of a client stays what it is for as long as the
// client has requests in the queue, even if the client is known by another user meanwhile.
//
// # Locks
//
// Gate.mu is a leaf. No lock is held while requests begin or are refused.
package admit

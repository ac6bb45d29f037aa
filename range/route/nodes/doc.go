// Package nodes has the connections of a sender to data nodes, and knows which nodes to trust.
//
// A Node has lanes, one stream of requests each. A request stays in its lane for all attempts.
//
// # Suspected nodes
//
// A node is suspected when its connection breaks, or when requests wait for it and nothing at all
// has come from it for a second (a stopped process, a host that vanished). It then gets no
// requests, only pings, and is trusted again with the first answer. Silence is noticed by one
// watchdog for all nodes, which counts answers, not by a timer per request.
//
// # Distances
//
// A node is near or far by its locality, and by the latency of its answers (latency.go), which is
// measured while a caller wants it.
//
// Nodes owns the set of nodes, under its lock; a Node owns its address and whether it is probed,
// under a lock of its own, which is taken after that of Nodes. The rest is atomic.
package nodes

// Package node is one data node: which replicas it holds, and what they need around them.
//
// # Data flow
//
//	metadata stream ─► range/node/table ─► reconciler: create, remove replicas
//	                        └► clients that watch the table from this node
//	clients ─► Submit ─► a pass: Take, Evaluate, Serve of each replica ─► one step of range/host
//	host ─► leadership, applied entries ─► elections, leader preference, reports, garbage collection
//	reports and statistics ─► heartbeats to the core
//
// The node owns its host.Host. The replicas it holds are found by an atomic pointer to a map, which
// is copied when it changes; a request takes no lock of the node.
//
// # Without the core
//
// A node needs the core to be told of changes, and for nothing else. What it was told last lies in
// the log database (range/node/table): at start it opens its replicas, knows where the others are,
// and serves; the stream of changes goes on at the revision that it had reached.
//
// # Goroutines
//
// A fixed number, whatever the number of replicas: one each for following metadata, reconciling,
// heartbeats, elections, leader preference, health, garbage collection and flushing; all end with
// Close.
//
// Locks (docs/locks.md): those of leaders, elections, reports, collector, reconciler and of the
// registry's writers are leaves: nothing is called with one of them held. The hooks on the host's
// workers (machine.go) take them for a few instructions.
//
// # Imports
//
// Everything below it in range, rpc and hlc. Never placement or kv: what it needs of the core is
// the interface Metadata.
package node

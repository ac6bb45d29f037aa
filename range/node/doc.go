// Package node is one data node: it holds replicas, and provides what they need.
//
// # Data flow
//
//	metadata stream ─► range/node/table ─► reconciler: create, remove replicas
//	                        └► clients that watch the table from this node
//	clients ─► Submit ─► a pass: Take, Evaluate, Serve of each replica ─► one step of range/host
//	host ─► leadership, applied entries ─► elections, leader preference, reports, garbage collection
//	reports and statistics ─► heartbeats to the core
//
// The node owns its host.Host. An atomic pointer leads to the map of its replicas, which is copied
// when it changes; a request takes no lock of the node.
//
// # Without the core
//
// A node needs the core only to learn of changes. The last table that it has received lies in the
// log database (range/node/table): at start the node opens its replicas, knows where the others
// are, and serves; the stream of changes continues at the revision that it had reached.
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
// Everything below it in range, rpc and hlc. Never placement or kv: the interface Metadata is all
// that the node needs of the core.
package node

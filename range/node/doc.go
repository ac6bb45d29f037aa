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
// INVARIANT: a replica is removed only on a positive statement of a complete table of this cluster,
// whose revision is not older than any that was seen: its keyspace was dropped, a later descriptor
// names it out, or another partition has its first key with a higher generation, and so has
// consumed it. Silence, errors and empty answers remove nothing.
//
// A removal is announced on disk before it begins (removal.go), so that a crash in its middle does
// not leave half a replica to be opened. A replica that is to be removed is closed at once. From
// the disk it goes together with what else is to be removed within two seconds (removal_pace.go),
// so that thousands of replicas that move away one by one cost a flush of the memtables now and
// then.
//
// # Which replica leads
//
// The first replica of a descriptor is the preferred leader. It campaigns at once in a new group,
// and first after a restart (elections.go). A leader that is not the preferred one hands over when
// the preferred replica is healthy and has everything (preference.go). Both go through lists of
// exactly the groups concerned: those without a known leader, and those led here and preferred
// elsewhere. A group that is as it should be is in no list and costs nothing.
//
// # The clock
//
// What is believed of the clocks is in package clockhealth; the host brings it the peers' pings,
// and the node looks at it with every tick (clock.go). A node whose clock is not trusted, because
// it has jumped, is off from a majority, or was not compared yet after a start, refuses all
// requests and gives its leaderships away until that is over.
//
// INVARIANT: no request is answered by a clock reading from after a jump beyond the maximum offset
// that peers have not confirmed, if there are peers.
//
// # The disks
//
// A leader whose log cannot be written can do nothing that its followers could not do better, and
// one without room refuses writes. So a node hands over what it leads when the write of its log
// that is under way takes longer than an election timeout, or when it has become full, to replicas
// on nodes that do not say the same of themselves in their pings; and it leaves elections to them
// (disk.go).
//
// # Goroutines
//
// A fixed number, whatever the number of replicas: one each for following metadata, reconciling,
// heartbeats, elections, leader preference, health, garbage collection and flushing; all end with
// Close.
//
// Locks: those of leaders, elections, reports, collector, reconciler and of the registry's writers
// are leaves: nothing is called with one of them held. The hooks on the host's workers (machine.go)
// take them for a few instructions.
//
// # Imports
//
// Everything below it in range, rpc and hlc. Never placement or kv: what it needs of the core is
// the interface Metadata.
package node

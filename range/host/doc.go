// Package host runs many Raft groups in one process: it is the Multi-Raft.
//
// # Data flow
//
//	peer transport ──► inbox of a group ──► shard worker ──► one message per peer host and pass
//	proposals, reads ─►                     (steps RawNode) ├► raftlog: one synced batch for all
//	                                                        └► apply workers: in order per group
//	raftlog: batch is durable ──► answers to peers (at once, one message per host) and to inboxes
//	apply workers: applied ──► the state machine's waiters, the inbox
//
// Groups are spread over a few shards; one worker steps all groups of its shard that have something
// to do, and hands out what all of them want in one go: what is shared across groups (a message per
// pair of hosts, a sync, a wake-up) is why many small groups are not much dearer than one big one.
// There is no goroutine per group. A sleeping group is in no list but the registry.
//
// # What owns what
//
// A group's RawNode (group.Group) is touched only within a pass over its shard. Passes are made one
// at a time: by the shard's worker, or, when that is at rest, by the goroutine that brought
// messages or proposals, over several shards if need be (step.go). Its inbox is under the inbox's
// lock, which is held for a few instructions. Applying, installing a snapshot and truncating the
// log are tasks in the group's apply queue (package applyqueue), which at most one apply worker
// runs at a time, in order; a follower's entries wait there for a few milliseconds (apply.go).
//
// A Group is made of types that own a part of the state: what any goroutine may read (published,
// lease, addresses), what only a pass touches (steps), the inbox, the applier, and what is under
// way (life). So is a Host: its registry of groups, what it says of itself in pings (ownStatus),
// what it knows of its peers (package peers), what is closed for groups that sleep (sleepers), and
// what bounds memory and disk (inboxBudget, diskSpace).
//
// Lock order (docs/locks.md has the order of the whole server): Host.mu, then Group.inbox.mu, then
// shard.mu, then applyqueue.Pool.mu, then applyqueue.Queue.mu. No lock is held over I/O, a callback
// or a send.
//
// # Failure
//
// A group whose state machine fails, whose log cannot be read, or in which Raft finds an invariant
// broken is marked failed: it does nothing more, says so in Group.Failed, the log and a metric, and
// the other replicas go on without it. A raft log that cannot be written fails all groups of the
// process.
//
// # Time
//
// One ticker ticks the awake groups. INVARIANT: two ticks of a group are never closer than the tick
// interval (but for the timer's own resolution): followers count ticks, and the leader's lease
// relies on their not counting fast. Each host pings each other one once in a tick (pings.go).
//
// What is believed of the clocks is in package clockhealth. Pings bring it the peers' clocks, and a
// lease counts only if it says so: a virtual machine may stand still together with its monotonic
// clock, and then a leader in it takes its lease for younger than it is.
package host

// Package consumer keeps the consumers of changes: how far readers of a keyspace have come, how a
// consumer may move, whether it has fallen behind by more than its keep, from which timestamp on
// history is protected for the consumers of a keyspace, and what time it is for all that.
//
// A consumer is a record (Record) in the core's store: a position, and how long history is kept for
// it. A Keeper answers the calls about consumers. While its member leads, it looks at all of them
// every LookInterval, and writes the lowest position into the keyspace's record as soon as the GC
// window is about to pass it: nodes hear of it with the table. A consumer that is made or reset is
// protected in the transaction that records it. The rules are pure functions, apart from the
// Keeper:
//
//	SetConsumer ──► Record.Move ──────────────┐
//	looks of the leader ──► Overdue, Times ───┼──► Lowest ──► Protection ──► the keyspace's record
//	heartbeats ──► Ahead ──► Majority ────────┘
//
// # Time
//
// The time decides whether a consumer is dropped, which cannot be taken back: the history that was
// kept for it is collected. So no single clock decides it, least of all that of the leader, which
// has nothing to compare it with. Two things have to be shown:
//
//   - The time has come. Nodes compare their clocks with each other's (range/clockhealth), and
//     their heartbeats bring the readings of trusted clocks. The time that a majority of the live
//     nodes has reached is proven; from the moment of a heartbeat on, the leader's monotonic clock
//     advances it. Without a majority nothing is proven.
//   - The consumer has stayed behind. The leader has seen it beyond its keep, by the proven time,
//     in all looks of a while (DropAfter). It measures that while as leases are counted down: on
//     its monotonic clock, anew under each leader and after each pause of its process. So a cluster
//     that was away for longer than a keep, or whose clocks were all wrong for a moment, gives the
//     consumers time to catch up.
//
// The package has no lock: what its goroutine (Run) and calls share is atomic.
package consumer

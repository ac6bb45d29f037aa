// Package consumer manages the consumers of changes. A consumer is the stored position of a reader
// of a keyspace's changes. The package decides how a consumer may move, whether it is behind by
// more than its keep, and from which timestamp on history is protected for the consumers of a
// keyspace. It also decides which time is used for these decisions.
//
// A consumer is a record (Record) in the core's store. The record has a position, and the time for
// which history is kept for the consumer. A Keeper answers the calls about consumers. While its
// member leads, it looks at all consumers every LookInterval. It writes the lowest position into
// the keyspace's record shortly before the GC window would pass that position. Nodes receive the
// keyspace's record with the table. When a consumer is created or reset, its position is protected
// in the same transaction. The rules are pure functions, separate from the Keeper:
//
//	SetConsumer ──► Record.Move ──────────────┐
//	looks of the leader ──► Overdue, Times ───┼──► Lowest ──► Protection ──► the keyspace's record
//	heartbeats ──► Ahead ──► Majority ────────┘
//
// # Time
//
// The time decides whether a consumer is dropped. A drop cannot be undone, because the history that
// was kept for the consumer is collected. So no single clock may decide it, in particular not the
// leader's own clock, which the leader cannot compare with another clock. Two things must be shown:
//
//   - The time has come. Nodes compare their clocks with each other (range/clockhealth), and their
//     heartbeats carry the readings of trusted clocks. A time that a majority of the live nodes has
//     reached is proven. From then on, the leader's monotonic clock advances the proven time.
//     Without a majority no time is proven.
//   - The consumer has stayed behind. In all looks during a period (DropAfter), the leader has seen
//     the consumer behind by more than its keep, by the proven time. The leader measures the period
//     on its monotonic clock. The period starts again under each leader, and after each pause of
//     the leader's process. So the consumers get time to catch up after an outage longer than their
//     keep, or after a moment in which all clocks were wrong.
//
// The package has no lock: the goroutine of Run and the calls share only atomic values.
package consumer

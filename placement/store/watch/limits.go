package watch

const (
	// MaxRecentEvents and MaxRecentBytes are what the ring keeps by default: the newest events, for
	// all watches together. A revision with more is in the history alone.
	MaxRecentEvents = 8192
	MaxRecentBytes  = 8 << 20
)

// Limits are the sizes by which the hub works. A field of 0 is 0, not a default.
type Limits struct {
	// RecentEvents and RecentBytes bound what the ring keeps, and the size up to which a revision
	// comes as a whole.
	RecentEvents, RecentBytes int
	// StretchEvents and StretchBytes are about what is distributed at a time.
	StretchEvents, StretchBytes int
	// QueueBudget bounds the bytes that wait for all streams together, except for QueueLeast, which
	// every stream may have; QueueMost bounds those of one stream.
	QueueBudget, QueueLeast, QueueMost int
	// OffersAtOnce is about how many events are put into queues, or watches looked at, before others
	// get the hub's lock.
	OffersAtOnce int
	// JoinEvents is how many of the newest events are searched for one watch, so that it need not
	// wait for a pass over the history.
	JoinEvents int
	// NearRevisions is how far behind a watch may be to be served by passes of its own, every
	// second time, so that it does not wait for those that begin far in the past.
	NearRevisions uint64
}

// DefaultLimits are those of a hub that is given none.
func DefaultLimits() *Limits {
	return &Limits{
		RecentEvents: MaxRecentEvents, RecentBytes: MaxRecentBytes,
		StretchEvents: 4096, StretchBytes: 4 << 20,
		QueueBudget: 256 << 20, QueueLeast: 16 << 10, QueueMost: 1 << 20,
		OffersAtOnce: 4096, JoinEvents: 64, NearRevisions: 4096,
	}
}

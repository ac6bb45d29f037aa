package watch

const (
	// MaxRecentEvents and MaxRecentBytes are the default bounds of the ring: the newest events,
	// which all watches share. A revision with more events is in the history only.
	MaxRecentEvents = 8192
	MaxRecentBytes  = 8 << 20
)

// Limits are the sizes and bounds of a hub. A field of 0 means 0, not a default.
type Limits struct {
	// RecentEvents and RecentBytes bound the ring, and the size up to which a revision comes as a
	// whole.
	RecentEvents, RecentBytes int
	// StretchEvents and StretchBytes are the approximate size of a stretch.
	StretchEvents, StretchBytes int
	// QueueBudget bounds the queued bytes of all streams together, except for QueueLeast, which
	// every stream may have; QueueMost bounds the queued bytes of one stream.
	QueueBudget, QueueLeast, QueueMost int
	// OffersAtOnce is the approximate number of events queued, or watches examined, before the
	// hub's lock is released for others.
	OffersAtOnce int
	// JoinEvents is the number of the newest events that are searched for one watch, so that it
	// need not wait for a pass over the history.
	JoinEvents int
	// NearRevisions is the distance up to which a lagging watch counts as near. Every second pass
	// serves near watches, so that they do not wait for passes that begin far in the past.
	NearRevisions uint64
}

// DefaultLimits are the limits of a hub without Config.Limits.
func DefaultLimits() *Limits {
	return &Limits{
		RecentEvents: MaxRecentEvents, RecentBytes: MaxRecentBytes,
		StretchEvents: 4096, StretchBytes: 4 << 20,
		QueueBudget: 256 << 20, QueueLeast: 16 << 10, QueueMost: 1 << 20,
		OffersAtOnce: 4096, JoinEvents: 64, NearRevisions: 4096,
	}
}

package store

const (
	// What the ring keeps: the newest events, for all watchers together. A revision with more is in
	// the database alone.
	maxRecentEvents = 8192
	maxRecentBytes  = 8 << 20
)

// watchLimits are the sizes by which the hub works. Tests have smaller ones.
type watchLimits struct {
	// recentEvents and recentBytes are what the ring keeps, and what a revision may have to be had
	// at once.
	recentEvents, recentBytes int
	// stretchEvents and stretchBytes are about what is distributed at a time.
	stretchEvents, stretchBytes int
	// queueBudget is how many bytes may wait for all streams together, but for queueLeast, which
	// every stream may have; queueMost is what one may have at most.
	queueBudget, queueLeast, queueMost int
	// offersAtOnce is about how many events are put into queues, or watches looked at, before others
	// get the hub's lock.
	offersAtOnce int
	// joinEvents is how many of the newest events are looked through for one watch, so that it need
	// not wait for a pass over the history.
	joinEvents int
	// nearRevisions is how far behind a watch may be to be served by passes of its own, every second
	// time, so that it does not wait for those that begin far in the past.
	nearRevisions uint64
}

var usualWatchLimits = watchLimits{
	recentEvents: maxRecentEvents, recentBytes: maxRecentBytes,
	stretchEvents: 4096, stretchBytes: 4 << 20,
	queueBudget: 256 << 20, queueLeast: 16 << 10, queueMost: 1 << 20,
	offersAtOnce: 4096, joinEvents: 64, nearRevisions: 4096,
}

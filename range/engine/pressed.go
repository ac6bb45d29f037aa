package engine

import "time"

const (
	// leastPressed and mostPressed bound how long no compaction begins after one that found no
	// room.
	leastPressed = 2 * time.Second
	mostPressed  = time.Minute
)

// pressed is for a database whose compactions find no room on the disk. Pebble tries the same one
// again and again, and each try writes, and removes, as much as there is room for. So after one
// that failed there is a pause, longer each time, until something has changed: a flush has ended,
// or there is more room.
type pressed struct {
	pause time.Duration
	until time.Time
	// begun is the free space with which the last compaction began, and found that with which the
	// one began that failed.
	begun, found uint64
}

func (p *pressed) begins(g *guard) { p.begun = g.free.Load() }

// failed is told of a compaction that found no room.
func (p *pressed) failed(now time.Time) {
	p.pause = min(max(2*p.pause, leastPressed), mostPressed)
	p.until, p.found = now.Add(p.pause), p.begun
}

// waits says whether none is to begin yet.
func (p *pressed) waits(now time.Time, g *guard) bool {
	return now.Before(p.until) && g.free.Load() < p.found+g.minFree/compactionBegins
}

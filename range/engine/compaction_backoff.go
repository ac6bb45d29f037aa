package engine

import "time"

const (
	// minCompactionBackoff and maxCompactionBackoff bound the pause after a compaction that found the
	// disk full.
	minCompactionBackoff = 2 * time.Second
	maxCompactionBackoff = time.Minute
)

// compactionBackoff delays the compactions of a database after one has failed because the disk is
// full. Pebble repeats a failed compaction at once, and each try fills the disk before its output
// is removed. So each failure is followed by a pause, longer each time, until something has
// changed: a flush has ended, or more of the disk is free.
type compactionBackoff struct {
	pause time.Duration
	until time.Time
	// begun is the free space, in bytes, when the last compaction began; found is the free space
	// when the last failed compaction began.
	begun, found uint64
}

func (p *compactionBackoff) begins(g *diskHealth) { p.begun = g.free.Load() }

// failed notes a compaction that failed for lack of space.
func (p *compactionBackoff) failed(now time.Time) {
	p.pause = min(max(2*p.pause, minCompactionBackoff), maxCompactionBackoff)
	p.until, p.found = now.Add(p.pause), p.begun
}

// waits reports whether the pause goes on: no compaction may begin yet.
func (p *compactionBackoff) waits(now time.Time, g *diskHealth) bool {
	return now.Before(p.until) && g.free.Load() < p.found+g.minFree/compactionBegins
}

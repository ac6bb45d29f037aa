package engine

import "fmt"

// A compaction writes new tables before it removes the old ones. On a disk that is nearly full it
// must not take the room that flushes, the log and the removal of data need: it is begun only while
// half of the reserve is free, and given up when it has left less than a quarter. What it has
// written goes away with it, and it is tried again when there is room. (Compactions that
// only drop tables write nothing, and are not concerned.)
//
// After a removal of data on a disk without room it is the compactions that give the room back: a
// table that has a little of something else beside what was removed stays until that is written
// anew. They write little then, and may begin with much less, until there is room again.

const (
	// compactionBegins and compactionEnds are the parts of the reserve that are free when a
	// compaction begins, and goes on.
	compactionBegins = 2
	compactionEnds   = 4
	// reclaimBegins and reclaimEnds are the same after a removal.
	reclaimBegins = 32
	reclaimEnds   = 64
	// spaceCheckBytes is how many bytes a compaction writes between two checks of the free space, and
	// spaceChecks the least number of checks while it writes as much as the reserve.
	spaceCheckBytes = 1 << 20
	spaceChecks     = 64
)

// reclaim is told that data was removed. It does not block.
func (g *diskHealth) reclaim() {
	if g.low.Load() {
		g.reclaims.Store(true)
	}
}

// compactionSpaceKept is how many bytes must be free for a compaction to begin, and to go on.
func (g *diskHealth) compactionSpaceKept() (begins, ends uint64) {
	if g.reclaims.Load() {
		return g.minFree / reclaimBegins, g.minFree / reclaimEnds
	}
	return g.minFree / compactionBegins, g.minFree / compactionEnds
}

// roomForCompaction says whether a compaction may begin.
func (g *diskHealth) roomForCompaction() bool {
	begins, _ := g.compactionSpaceKept()
	return g.minFree == 0 || g.free.Load() == 0 && !g.low.Load() || g.free.Load() >= begins
}

// compactionSpace bounds what is written to a table before the free space is checked again.
type compactionSpace struct {
	bytes int
	// spare: it is not for a compaction, but can be had again, and leaves the whole reserve.
	spare bool
}

// take is told of each write. A nil compactionSpace has no bound.
func (a *compactionSpace) take(g *diskHealth, n int) error {
	if a == nil || g.minFree == 0 {
		return nil
	}
	if a.bytes -= n; a.bytes > 0 {
		return nil
	}
	a.bytes = min(spaceCheckBytes, int(g.minFree/spaceChecks))
	usage, err := g.inner.GetDiskUsage(g.dir)
	if err != nil {
		return nil // the filesystem cannot tell
	}
	g.noteFree(usage.AvailBytes)
	_, keeps := g.compactionSpaceKept()
	what := "a compaction"
	if a.spare {
		keeps, what = g.reserve(), "a table that can be had again"
	}
	if usage.AvailBytes < keeps {
		return fmt.Errorf("%w for %s in %s: %d bytes are free, and %d are kept",
			ErrNoRoom, what, g.dir, usage.AvailBytes, keeps)
	}
	return nil
}

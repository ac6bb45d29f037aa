package engine

import "fmt"

// A compaction writes new tables before it removes the old ones. On a nearly full disk it must not
// take the space that flushes, the log and the removal of data need: it begins only while half of
// the reserve is free, and is given up when less than a quarter is left. Its output is then
// removed, and it is tried again when there is space. (Compactions that only drop tables write
// nothing, and are not limited.)
//
// After data was removed on a full disk, compactions are what frees the space: a table that still
// holds a little other data stays until that data is rewritten. Such compactions write little, and
// may begin with much less free space, until the disk has space again.

const (
	// compactionBegins and compactionEnds divide the reserve: the part that must be free for a
	// compaction to begin, and to go on.
	compactionBegins = 2
	compactionEnds   = 4
	// reclaimBegins and reclaimEnds are the same after data was removed.
	reclaimBegins = 32
	reclaimEnds   = 64
	// spaceCheckBytes is how many bytes a compaction writes between two checks of the free space.
	// spaceChecks is the least number of checks while it writes as many bytes as the reserve has.
	spaceCheckBytes = 1 << 20
	spaceChecks     = 64
)

// reclaim notes that data was removed. It does not block.
func (g *diskHealth) reclaim() {
	if g.low.Load() {
		g.reclaims.Store(true)
	}
}

// compactionSpaceKept returns how many bytes must be free for a compaction to begin, and to go on.
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

// compactionSpace counts the bytes written to a table since the free space was last checked.
type compactionSpace struct {
	bytes int
	// spare is set for a table that can be written again later. Such a table leaves the whole
	// reserve free.
	spare bool
}

// take is called at each write. A nil compactionSpace has no bound.
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

package engine

import "fmt"

// A compaction writes new tables before it removes the old ones. On a disk that is nearly full it
// must not take the room that flushes, the log and the removal of data need: it is begun only while
// half of the reserve is free, and given up when it has left less than a quarter. What it has
// written goes away with it, and it is tried again when there is room. (Compactions that
// only drop tables write nothing, and are not concerned.)

const (
	// compactionBegins and compactionEnds are the parts of the reserve that are free when a
	// compaction begins, and goes on.
	compactionBegins = 2
	compactionEnds   = 4
	// allowanceBytes is how much a compaction writes between two looks at the free space.
	allowanceBytes = 1 << 20
)

// roomForCompaction says whether a compaction may begin.
func (g *guard) roomForCompaction() bool {
	return g.minFree == 0 || g.free.Load() == 0 && !g.low.Load() ||
		g.free.Load() >= g.minFree/compactionBegins
}

// allowance is how much may still be written to a table before the free space is looked at again.
type allowance struct{ bytes int }

// take is told of each write. A nil allowance has no bound.
func (a *allowance) take(g *guard, n int) error {
	if a == nil || g.minFree == 0 {
		return nil
	}
	if a.bytes -= n; a.bytes > 0 {
		return nil
	}
	a.bytes = min(allowanceBytes, int(g.minFree/compactionEnds))
	usage, err := g.inner.GetDiskUsage(g.dir)
	if err != nil {
		return nil // the filesystem cannot tell
	}
	g.free.Store(usage.AvailBytes)
	if usage.AvailBytes < g.minFree/compactionEnds {
		return fmt.Errorf("%w for a compaction in %s: %d bytes are free, and %d are kept",
			ErrNoRoom, g.dir, usage.AvailBytes, g.minFree/compactionEnds)
	}
	return nil
}

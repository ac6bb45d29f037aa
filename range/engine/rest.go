package engine

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Flushes and compactions are in no hurry, as a rule, and each could keep a processor busy for a second: on a machine with few of them
// that is a second in which requests stand in line. So they write their tables in pieces, and rest after each for longer than it took, unless
// somebody waits for a flush, or they fall behind what is written.

// Categories of the files that they write, as Pebble names them.
const (
	flushCategory      vfs.DiskWriteCategory = "pebble-memtable-flush"
	compactionCategory vfs.DiskWriteCategory = "pebble-compaction"
)

const (
	// pieceBytes is how much is written between two rests. restTimes is how much longer than a piece a rest is, at most longestRest.
	pieceBytes  = 8 << 10
	restTimes   = 2
	longestRest = 10 * time.Millisecond
	// From so many full memtables on, besides the one that takes writes, or so many times the sublevels of L0 from which on is compacted, there
	// are no rests.
	hurryMemTables = 2
	hurrySublevels = 2
)

// piece is what has been written of a table since the last rest. It is for one goroutine.
type piece struct {
	bytes int
	began time.Time
}

// rests says that files of a category are written with rests.
func rests(category vfs.DiskWriteCategory) bool {
	return category == flushCategory || category == compactionCategory
}

// wrote counts what was written, and rests when a piece is full.
func (p *piece) wrote(g *guard, n int) {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	if p.bytes += n; p.bytes < pieceBytes {
		return
	}
	if !g.behind.Load() && g.awaited.Load() == 0 {
		if d := min(restTimes*time.Since(p.began), longestRest); d > 0 {
			g.pause(d)
		}
	}
	p.bytes, p.began = 0, time.Now()
}

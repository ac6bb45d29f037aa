package engine

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/admission"
)

// Flushes and compactions are in no hurry, as a rule, and each could keep a processor busy for a
// second: on a machine with few of them that is a second in which requests wait. So they write
// their tables in pieces, and pause after each (admission.Flush), unless a caller waits for a
// flush, or they fall behind what is written.

// Categories of the files that they write, as Pebble names them.
const (
	flushCategory      vfs.DiskWriteCategory = "pebble-memtable-flush"
	compactionCategory vfs.DiskWriteCategory = "pebble-compaction"
)

const (
	// pieceBytes is how much is written between two pauses.
	pieceBytes = 8 << 10
	// From so many full memtables on, besides the one that takes writes, or so many times the
	// sublevels of L0 from which on is compacted, there are no pauses.
	hurryMemTables = 2
	hurrySublevels = 2
)

// flushes paces all of them: each pauses by itself.
var flushes = admission.NewPacer(admission.Flush, nil)

// piece is what has been written of a table since the last pause. It is for one goroutine.
type piece struct {
	bytes int
	began time.Time
}

// paced says that files of a category are written with pauses.
func paced(category vfs.DiskWriteCategory) bool {
	return category == flushCategory || category == compactionCategory
}

// wrote counts what was written, and pauses when a piece is full.
func (p *piece) wrote(g *diskHealth, n int) {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	if p.bytes += n; p.bytes < pieceBytes {
		return
	}
	by := admission.Low
	if g.behind.Load() || g.awaited.Load() > 0 {
		by = admission.Urgent
	}
	now := time.Now()
	if d := flushes.Pause(now, now.Sub(p.began), by); d > 0 {
		g.pause(d)
		now = time.Now()
	}
	p.bytes, p.began = 0, now
}

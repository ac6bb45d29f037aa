package engine

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/admission"
)

// Flushes and compactions are usually not urgent, and each could keep a processor busy for a
// second. On a machine with few processors, requests would wait for that second. So tables are
// written in pieces, with a pause after each (admission.Flush), unless a caller waits for a flush,
// or flushes and compactions do not keep up with the writes.

// The categories of tables, as Pebble names them.
const (
	flushCategory      vfs.DiskWriteCategory = "pebble-memtable-flush"
	compactionCategory vfs.DiskWriteCategory = "pebble-compaction"
)

const (
	// pieceBytes is how many bytes are written between two pauses.
	pieceBytes = 8 << 10
	// There are no pauses when this many full memtables wait besides the one that takes writes, or
	// when L0 has this many times the sublevels at which it is compacted.
	hurryMemTables = 2
	hurrySublevels = 2
)

// flushes paces the writers of tables: each pauses by itself.
var flushes = admission.NewPacer(admission.Flush, nil)

// piece counts what was written of a table since the last pause. It is for one goroutine.
type piece struct {
	bytes int
	began time.Time
}

// paced reports whether files of a category are written with pauses.
func paced(category vfs.DiskWriteCategory) bool {
	return category == flushCategory || category == compactionCategory
}

// wrote counts written bytes, and pauses when a piece is full.
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

package engine

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/admission"
)

// Flushes and compactions are usually not urgent, and each could keep a processor busy for a
// second. On a machine with few processors, requests would wait for that second. So tables are
// written in pieces, with a pause after each (admission.Flush). Flushes do not pause while a caller
// waits for one, or while flushes do not keep up with the writes, and compactions do not pause while
// compactions do not keep up. A compaction that hurried for the sake of a flush would take the
// processor from it.

// The categories of tables, as Pebble names them.
const (
	flushCategory      vfs.DiskWriteCategory = "pebble-memtable-flush"
	compactionCategory vfs.DiskWriteCategory = "pebble-compaction"
)

const (
	// pieceBytes is how many bytes are written between two pauses.
	pieceBytes = 8 << 10
	// Flushes do not pause when this many full memtables wait besides the one that takes writes.
	// Compactions do not when L0 has this many times the sublevels at which it is compacted.
	hurryMemTables = 2
	hurrySublevels = 2
)

// flushes paces the writers of tables: each pauses by itself.
var flushes = admission.NewPacer(admission.Flush, nil)

// piece counts what was written of a table since the last pause. It is for one goroutine.
type piece struct {
	category vfs.DiskWriteCategory
	bytes    int
	began    time.Time
}

// paced reports whether files of a category are written with pauses.
func paced(category vfs.DiskWriteCategory) bool {
	return category == flushCategory || category == compactionCategory
}

// urgent reports whether the table is written without pauses at present.
func (p *piece) urgent(g *diskHealth) bool {
	if p.category == compactionCategory {
		return g.compactionsBehind.Load()
	}
	return g.flushesBehind.Load() || g.awaited.Load() > 0
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
	if p.urgent(g) {
		by = admission.Urgent
	}
	now := time.Now()
	if d := flushes.Pause(now, now.Sub(p.began), by); d > 0 {
		g.pause(d)
		now = time.Now()
	}
	p.bytes, p.began = 0, now
}

package replica

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
)

// TestRecentAgainstMap checks that what the table knows is true: the newest version of each key, beside a map of all of them.
func TestRecentAgainstMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		budget := recentBudget{limit: int64(rapid.IntRange(0, 4096).Draw(r, "budget"))}
		most := 1 << rapid.IntRange(6, 12).Draw(r, "most")
		var table recent
		type version struct {
			ts          hlc.Timestamp
			live, waits bool
		}
		model := map[uint64]version{}
		clock := int64(0)
		keys := rapid.IntRange(1, 2000).Draw(r, "keys")
		for range rapid.IntRange(1, 3000).Draw(r, "writes") {
			clock++
			hash := recentHash(fmt.Sprint(rapid.IntRange(1, keys).Draw(r, "key")))
			v := version{hlc.Timestamp{Wall: clock / 3, Logical: uint32(clock % 3)}, rapid.Bool().Draw(r, "live"), rapid.Bool().Draw(r, "waits")}
			table.note(hash, v.ts, v.live, v.waits, most, &budget)
			model[hash] = v
			if ts, live, waits, ok := table.find(hash); ok && (ts != v.ts || live != v.live || waits != v.waits) {
				r.Fatalf("just written at %v, found at %v", v, ts)
			} else if !ok && len(table.slots) > 0 {
				r.Fatal("what was just written is not known")
			}
		}
		for hash, v := range model {
			if ts, live, waits, ok := table.find(hash); ok && (ts != v.ts || live != v.live || waits != v.waits) {
				r.Fatalf("found %v %v %v, the newest is %v", ts, live, waits, v)
			}
		}
		if len(table.slots) > most || budget.used.Load() != int64(len(table.slots)) || budget.used.Load() > budget.limit {
			r.Fatalf("%d slots of at most %d, %d counted of at most %d", len(table.slots), most, budget.used.Load(), budget.limit)
		}
		table.reset(&budget)
		if budget.used.Load() != 0 {
			r.Fatal("a table that is forgotten still counts")
		}
	})
}

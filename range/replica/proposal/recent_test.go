package proposal

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
)

// What the table knows is true: the newest version of each key, beside a map of all of them.
func TestRecentAgainstMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		budget := NewBudget(rapid.IntRange(0, 4096).Draw(r, "budget"))
		limit := 1 << rapid.IntRange(6, 12).Draw(r, "limit")
		table := NewRecent(limit, budget)
		model := map[string]Known{}
		clock := int64(0)
		keys := rapid.IntRange(1, 2000).Draw(r, "keys")
		for range rapid.IntRange(1, 3000).Draw(r, "writes") {
			clock++
			key := fmt.Sprint(rapid.IntRange(1, keys).Draw(r, "key"))
			v := Known{
				Timestamp:  hlc.Timestamp{Wall: clock / 3, Logical: uint32(clock % 3)},
				Live:       rapid.Bool().Draw(r, "live"),
				CommitWait: rapid.Bool().Draw(r, "commit wait"),
			}
			table.Note(key, v)
			model[key] = v
			if known, ok := table.Find(key); ok && known != v {
				r.Fatalf("just written: %v, found: %v", v, known)
			} else if !ok && len(table.slots) > 0 {
				r.Fatal("what was just written is not known")
			}
		}
		for key, v := range model {
			if known, ok := table.Find(key); ok && known != v {
				r.Fatalf("found %v, the newest is %v", known, v)
			}
		}
		counted := budget.used.Load()
		if len(table.slots) > limit || counted != int64(len(table.slots)) || counted > budget.limit {
			r.Fatalf("%d slots of at most %d, %d counted of at most %d",
				len(table.slots), limit, counted, budget.limit)
		}
		table.Reset()
		if budget.used.Load() != 0 {
			r.Fatal("a table that is forgotten still counts")
		}
	})
}

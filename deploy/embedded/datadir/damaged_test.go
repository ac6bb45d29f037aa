package datadir

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/engine"
)

// A database that does not open because a file is damaged says which, what goes on without this
// server, and what to do, once.
func TestADamagedDatabaseSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		roles  []string
		part   string
		advice string
	}{
		{[]string{Node}, "node", "start with an empty one"},
		{[]string{Core, Node}, "node", "start with --roles core"},
		{[]string{Core}, "core", "tidemark core replace"},
	} {
		fs := vfs.NewMem()
		core := slices.Contains(c.roles, Core)
		d, err := Open(fs, "dir", func() uint64 { return 7 })
		if err != nil {
			t.Fatal(err)
		}
		state, err := engine.OpenState(engine.Options{FS: fs, Dir: d.Sub(c.part, "state"),
			CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Close(); err != nil {
			t.Fatal(err)
		}
		names, err := fs.List(d.Sub(c.part, "state"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "MANIFEST") {
				write(t, fs, d.Sub(c.part, "state", name), strings.Repeat("nonsense", 100))
			}
		}
		_, err = engine.OpenState(engine.Options{FS: fs, Dir: d.Sub(c.part, "state"),
			CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
		if !engine.IsCorruption(err) {
			t.Fatalf("the damage is not noticed: %v", err)
		}
		text := d.Damaged(c.part, core, d.Damaged(c.part, core, err)).Error()
		if !strings.Contains(text, "MANIFEST") ||
			strings.Count(text, "cannot start from dir") != 1 ||
			!strings.Contains(text, c.advice) || strings.Contains(text, "\n") {
			t.Errorf("%v, %s: %s", c.roles, c.part, text)
		}
		if other := errors.New("another"); d.Damaged(c.part, core, other) != other {
			t.Error("an error of another kind is changed")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

//go:build invariants || race

package tree

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// A tree whose keys are out of order, or whose length is wrong, is not handed out.
func TestTreesAreChecked(t *testing.T) {
	e := NewOrdered[int, int]().Edit()
	for k := range 3 {
		e.Set(k, k)
	}
	e.tree.root.keys[1] = 7
	if text := invariants.Violated(func() { e.Tree() }); !strings.Contains(text, "not in order") {
		t.Errorf("of keys that are not in order the check says %q", text)
	}
	e.tree.root.keys[1], e.tree.length = 1, 4
	if text := invariants.Violated(func() { e.Tree() }); !strings.Contains(text, "has 3 entries") {
		t.Errorf("of a wrong length the check says %q", text)
	}
}

//go:build invariants || race

package quota

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// What is given back was taken, and what is counted is held.
func TestCountsAreChecked(t *testing.T) {
	b := NewBytes(10, 5)
	b.Take("a", 3)
	text := invariants.Violated(func() { b.Give("b", 1) })
	if !strings.Contains(text, `"b" gives back 1 bytes, holds 0`) {
		t.Errorf("of bytes that another party holds the check says %q", text)
	}
	p := NewPlaces(4, 2, 0)
	place := p.Enter("a", func() {})
	p.total++
	if text := invariants.Violated(place.Leave); !strings.Contains(text, "0 places are held") {
		t.Errorf("of a place that is counted twice the check says %q", text)
	}
}

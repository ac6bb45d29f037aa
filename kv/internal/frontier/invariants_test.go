//go:build invariants || race

package frontier

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A frontier does not go back, and its parts do not overlap.
func TestFrontiersAreChecked(t *testing.T) {
	span := func(start, end string) keys.Span {
		return keys.Span{Start: []byte(start), End: []byte(end)}
	}
	f := New(hlc.Timestamp{Wall: 5}, span("a", "c"))
	before := f.parts[0]
	f.parts[0].Resolved = hlc.Timestamp{Wall: 4}
	text := invariants.Violated(func() { f.checkInvariantKnown(hlc.Timestamp{Wall: 5}, before) })
	if !strings.Contains(text, "a frontier goes back") {
		t.Errorf("of a frontier that goes back the check says %q", text)
	}
	f = New(hlc.Timestamp{}, span("a", "c"), span("b", "d"))
	if text := invariants.Violated(func() { f.Join(span("a", "b")) }); !strings.Contains(text,
		"part 1 of a frontier") {
		t.Errorf("of parts that overlap the check says %q", text)
	}
}

//go:build invariants || race

package replica

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
)

// What is closed, the threshold and the applied index never fall, and nothing is written at or
// below what is closed.
func TestApplicationsAreChecked(t *testing.T) {
	at := func(wall int64) hlc.Timestamp { return hlc.Timestamp{Wall: wall} }
	before := storage.Record{Index: 5, Term: 2, Closed: at(10), Threshold: at(8), Highest: at(12)}
	for want, change := range map[string]func(*storage.Record){
		"is applied after entry 5": func(r *storage.Record) { r.Index = 4 },
		"is closed after":          func(r *storage.Record) { r.Closed = at(9) },
		"threshold falls":          func(r *storage.Record) { r.Threshold = at(7) },
		"highest timestamp falls":  func(r *storage.Record) { r.Highest = at(11) },
	} {
		after := before
		change(&after)
		text := invariants.Violated(func() { checkInvariantAdvance(7, &before, &after) })
		if !strings.Contains(text, want) {
			t.Errorf("the check says %q, want %q", text, want)
		}
	}
	checkInvariantAdvance(7, &before, &before)
	version := keys.AppendTimestamp(keys.AppendDataKey(nil, []byte("key")), at(10))
	checkInvariantClosed(version, at(9))
	text := invariants.Violated(func() { checkInvariantClosed(version, at(10)) })
	if !strings.Contains(text, "is closed") {
		t.Errorf("of a version that is closed the check says %q", text)
	}
}

//go:build invariants || race

package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// The leases that are ending are counted.
func TestEndingLeasesAreChecked(t *testing.T) {
	now := int64(time.Hour)
	l := New(func() int64 { return now }, time.Hour)
	l.Changed([]Change{{ID: 1, TTLMillis: 1000}}, nil)
	l.Activate(true)
	l.mu.leases[1].ending = l.now()
	text := invariants.Violated(func() { l.Due() })
	if !strings.Contains(text, "1 leases with 0 keys are ending, and 0 with 0 are counted") {
		t.Errorf("the check says %q", text)
	}
}

//go:build invariants || race

package spans

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// No two partitions of a node that are in order have a key in common.
func TestSpansAreChecked(t *testing.T) {
	var table Table
	left := &clusterpb.Partition{Id: 1, Start: []byte("a"), End: []byte("c")}
	table.Own(left)
	table.Own(&clusterpb.Partition{Id: 2, Start: []byte("c"), End: []byte("e")})
	left.End = []byte("d")
	text := invariants.Violated(table.checkInvariantsLocked)
	if !strings.Contains(text, "have a part of each other's span") {
		t.Errorf("the check says %q", text)
	}
}

//go:build invariants || race

package state

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// The sums of the nodes are those of the partitions that are there, whatever came and went.
func TestSumsAreChecked(t *testing.T) {
	s := newState(t)
	one, other := partition(1), partition(2)
	one.Bytes, other.Bytes = 100, 10
	must(t, s.SetPartition(one))
	must(t, s.SetPartition(other))
	s.RemovePartition(1)
	s.Advance(start, nil)
	checkInvariantSums(s)
	s.Nodes[0].Pending++
	if text := invariants.Violated(func() { checkInvariantSums(s) }); !strings.Contains(text,
		"the sums of node n1") {
		t.Errorf("of a sum that is wrong the check says %q", text)
	}
	s.Nodes[0].Pending--
	s.Keyspaces[0].bytes++
	if text := invariants.Violated(func() { checkInvariantSums(s) }); !strings.Contains(text,
		"has 11 bytes, and its partitions have 10") {
		t.Errorf("of a keyspace's bytes that are wrong the check says %q", text)
	}
}

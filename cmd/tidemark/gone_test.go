package main

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// What is left to do about a node that is gone depends on what is at its address.
func TestGoneText(t *testing.T) {
	nodes := []admin.NodeInfo{{ID: 1, Address: "a", Status: admin.NodeGone},
		{ID: 2, Address: "b", Status: admin.NodeGone}, {ID: 3, Address: "c", Status: admin.NodeGone},
		{ID: 4, Address: "c"}}
	core := admin.Core{Members: []admin.CoreMemberInfo{{ID: 1, Address: "a"}, {ID: 4, Address: "c"}}}
	for node, want := range map[uint64]string{1: "tidemark core remove a", 2: "stop its server",
		3: "the server at its address is node 4"} {
		if got := goneText(node, nodes, core); !strings.Contains(got, want) {
			t.Errorf("node %d: %q, want %q", node, got, want)
		}
	}
}

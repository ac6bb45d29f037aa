package route

import (
	"errors"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A node is not asked where another one is by now, and is again when it is there after all.
func TestDisplacedNodesAreNotAsked(t *testing.T) {
	s := bareSender()
	defer func() { s.life.End() }()
	lost := &clusterpb.Node{Id: 1, Address: "here:1"}
	s.mu.contents.nodes[1] = lost
	n := s.nodeLocked(1)
	if address, _ := n.addressAndReason(); address != "here:1" {
		t.Fatalf("its address is %q", address)
	}
	for _, gone := range []*clusterpb.Node{{Id: 1, Address: "here:1", Displaced: true},
		{Id: 1, Address: "here:1", Status: clusterpb.NodeStatus_NODE_GONE}} {
		s.mu.contents.nodes[1], s.mu.contents.nodes[2] = gone, &clusterpb.Node{Id: 2, Address: "here:1"}
		s.updateAddressesLocked()
		l := lane{node: n}
		if _, err := l.stream(); !errors.Is(err, errNoAddress) {
			t.Errorf("%v: a stream to it: %v", gone, err)
		}
		delete(s.mu.nodes, keys.NodeID(1))
		if address, _ := s.nodeLocked(1).addressAndReason(); address != "" {
			t.Errorf("%v: its address is %q", gone, address)
		}
		if address, _ := s.nodeLocked(2).addressAndReason(); address != "here:1" {
			t.Errorf("the other one's address is %q", address)
		}
		s.mu.nodes[1] = n
	}
	s.mu.contents.nodes[1] = lost
	s.updateAddressesLocked()
	if address, _ := n.addressAndReason(); address != "here:1" {
		t.Errorf("its address is %q when it is back", address)
	}
}

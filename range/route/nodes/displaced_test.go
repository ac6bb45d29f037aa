package nodes

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A node is not asked where another one is by now, and is again when it is there after all.
func TestDisplacedNodesAreNotAsked(t *testing.T) {
	infos := map[keys.NodeID]*clusterpb.Node{}
	s := New(Config{Lanes: 1, Random: rand.Uint64, Life: lifetime.New()})
	defer func() { s.config.Life.End() }()
	lost := &clusterpb.Node{Id: 1, Address: "here:1"}
	infos[1] = lost
	n := s.Get(1, infos[1])
	if address, _ := n.AddressAndReason(); address != "here:1" {
		t.Fatalf("its address is %q", address)
	}
	for _, gone := range []*clusterpb.Node{{Id: 1, Address: "here:1", Displaced: true},
		{Id: 1, Address: "here:1", Status: clusterpb.NodeStatus_NODE_GONE}} {
		infos[1], infos[2] = gone, &clusterpb.Node{Id: 2, Address: "here:1"}
		s.Update(infos)
		l := Lane{Node: n}
		if _, err := l.Stream(); !errors.Is(err, errNoAddress) {
			t.Errorf("%v: a stream to it: %v", gone, err)
		}
		delete(s.mu.nodes, keys.NodeID(1))
		if address, _ := s.Get(1, infos[1]).AddressAndReason(); address != "" {
			t.Errorf("%v: its address is %q", gone, address)
		}
		if address, _ := s.Get(2, infos[2]).AddressAndReason(); address != "here:1" {
			t.Errorf("the other one's address is %q", address)
		}
		s.mu.nodes[1] = n
	}
	infos[1] = lost
	s.Update(infos)
	if address, _ := n.AddressAndReason(); address != "here:1" {
		t.Errorf("its address is %q when it is back", address)
	}
}

package refusal

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// led is a group of which a replica leads at term 1; 0: none is known.
type led struct {
	config.Group
	leader keys.ReplicaID
}

func (l led) Leader() (keys.ReplicaID, uint64) { return l.leader, 1 }

// silentNodes is a server that hears nothing of some nodes.
type silentNodes struct {
	config.Alone
	down map[keys.NodeID]bool
}

func (s silentNodes) Silent(n keys.NodeID) bool { return s.down[n] }

// A refusal says what is so: which node leads, and that nodes are down only if some are.
func TestRefusalsSayWhatIsSo(t *testing.T) {
	d := &clusterpb.Partition{Id: 100}
	for id := range uint64(3) {
		d.Replicas = append(d.Replicas, &clusterpb.Replica{Replica: id + 1, Node: 11 + id})
	}
	down := make(map[keys.NodeID]bool)
	node := &config.Node{Clock: hlc.NewClock(nil, nil), Server: silentNodes{down: down}}
	refuse := &Refuser{Partition: 100, Self: 1, Group: led{leader: 2}, Node: node,
		Descriptor: func() *clusterpb.Partition { return d }}
	q := &kvpb.Request{Partition: 100}
	timeout := errors.New("no quorum of the group answered")
	for _, c := range []struct {
		name string
		down []keys.NodeID
		ask  func() *kvpb.Response
		code kvpb.ErrorCode
		says string
	}{
		{"not the leader", nil, func() *kvpb.Response { return refuse.NotLeader(q) },
			kvpb.ErrorCode_NOT_LEADER, "node n12 leads it, at term 1"},
		{"no node is down", nil, func() *kvpb.Response { return refuse.Unconfirmed(q, timeout) },
			kvpb.ErrorCode_NODE_UNHEALTHY, "none of them is known to be down"},
		{"one node is down", []keys.NodeID{12},
			func() *kvpb.Response { return refuse.Unconfirmed(q, timeout) },
			kvpb.ErrorCode_NODE_UNHEALTHY, "did not confirm"},
		{"two nodes are down", []keys.NodeID{12, 13},
			func() *kvpb.Response { return refuse.Unconfirmed(q, timeout) },
			kvpb.ErrorCode_NO_QUORUM, "2 of its 3 replicas, on node n12 and node n13, are silent"},
	} {
		clear(down)
		for _, n := range c.down {
			down[n] = true
		}
		if e := c.ask().Error; e.Code != c.code || !strings.Contains(e.Message, c.says) ||
			strings.Contains(e.Message, "see the leader given") {
			t.Errorf("%s: %s: %s\nwant %s, and in it %q", c.name, e.Code, e.Message, c.code, c.says)
		}
	}
}

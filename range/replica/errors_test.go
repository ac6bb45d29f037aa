package replica

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A refusal says what is so: which node leads, and that nodes are down only if some are.
func TestRefusalsSayWhatIsSo(t *testing.T) {
	c := newTestCluster(t, 3, Limits{})
	defer c.close()
	c.elect(c.members[1])
	m := c.members[0]
	m.tell(group.Leadership{Term: c.members[1].leadership.Term, Leader: c.members[1].id})
	down := make(map[keys.NodeID]bool)
	m.node.Silent = func(n keys.NodeID) bool { return down[n] }
	q := &kvpb.Request{Partition: 100}
	timeout := errors.New("no quorum of the group answered")
	for _, c := range []struct {
		name string
		down []keys.NodeID
		ask  func() *kvpb.Response
		code kvpb.ErrorCode
		says string
	}{
		{"not the leader", nil, func() *kvpb.Response { return m.replica.notLeader(q) },
			kvpb.ErrorCode_NOT_LEADER, "node n12 leads it, at term 1"},
		{"no node is down", nil, func() *kvpb.Response { return m.replica.unconfirmed(q, timeout) },
			kvpb.ErrorCode_NODE_UNHEALTHY, "none of them is known to be down"},
		{"one node is down", []keys.NodeID{12},
			func() *kvpb.Response { return m.replica.unconfirmed(q, timeout) },
			kvpb.ErrorCode_NODE_UNHEALTHY, "did not confirm"},
		{"two nodes are down", []keys.NodeID{12, 13},
			func() *kvpb.Response { return m.replica.unconfirmed(q, timeout) },
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

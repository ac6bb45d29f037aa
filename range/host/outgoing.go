package host

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// outgoing collects what the groups of a pass send and append, over one shard or several.
type outgoing struct {
	sends   sends
	appends []*raftlog.Append
}

func newOutgoing() *outgoing {
	o := &outgoing{}
	o.sends.init()
	return o
}

// flush sends one message per peer host and class, and submits all appends at once.
func (o *outgoing) flush(h *Host) {
	o.sends.flush(h)
	if len(o.appends) > 0 {
		h.log.Submit(o.appends)
		clear(o.appends)
		o.appends = o.appends[:0]
	}
}

// sends collects messages by host and class.
type sends struct {
	consensus map[uint64][]*peerpb.RaftMessage
	control   map[uint64][]*peerpb.RaftMessage
}

func (c *sends) init() {
	c.consensus = make(map[uint64][]*peerpb.RaftMessage)
	c.control = make(map[uint64][]*peerpb.RaftMessage)
}

func (c *sends) add(g *Group, m *peerpb.RaftMessage) {
	host := g.HostOf(replicaID(m.GetTo()))
	if host == 0 {
		return
	}
	if g.withheld(host, m) {
		return
	}
	if isControl(m) {
		c.control[host] = append(c.control[host], m)
		return
	}
	c.consensus[host] = append(c.consensus[host], m)
}

func (c *sends) flush(h *Host) {
	for host, messages := range c.consensus {
		h.transport.Send(host, peer.ClassConsensus, messages)
	}
	for host, messages := range c.control {
		h.sendControl(host, messages)
	}
	clear(c.consensus)
	clear(c.control)
}

// isControl reports whether a message must not wait behind entries.
func isControl(m *peerpb.RaftMessage) bool {
	switch raftpb.MessageType(m.GetType()) {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		return true
	}
	return m.GetWake()
}

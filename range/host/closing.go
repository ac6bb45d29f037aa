package host

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// bringClosed has the heartbeats of a leader, which are sent next, say what it closes.
func (g *Group) bringClosed(messages []*peerpb.RaftMessage) {
	var closed hlc.Timestamp
	var index uint64
	asked := false
	for _, m := range messages {
		if raftpb.MessageType(m.GetType()) != raftpb.MsgHeartbeat || m.GetWake() {
			continue
		}
		if !asked {
			closer, closes := g.machine.(group.Closer)
			if !closes {
				return
			}
			asked = true
			if closed, index, closes = closer.CloseIdle(); !closes {
				return
			}
		}
		// Of a leader's closed timestamps only the wall time says anything, unless they are of reads;
		// what is below is closed too.
		m.Closed, m.ClosedIndex = uint64(closed.Wall), index
	}
}

// takeClosed takes what a heartbeat says. It holds whether that leader still leads or not.
func (g *Group) takeClosed(m *peerpb.RaftMessage) {
	if m.GetClosed() == 0 {
		return
	}
	if closer, closes := g.machine.(group.Closer); closes {
		closer.NoteClosed(hlc.Timestamp{Wall: int64(m.GetClosed())}, m.GetClosedIndex())
	}
}

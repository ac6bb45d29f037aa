package group

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// TestContextsOfHeartbeats: Raft reads a number from the context of a heartbeat's answer, however
// short it is.
func TestContextsOfHeartbeats(t *testing.T) {
	s := &scenario{t: t, replicas: map[keys.ReplicaID]*scenarioReplica{}, cut: map[[2]uint64]bool{},
		away: map[keys.ReplicaID]bool{}}
	s.command(&datadriven.TestData{Cmd: "replicas", CmdArgs: []datadriven.CmdArg{{Key: "3"}}})
	s.replicas[1].group.Campaign()
	s.collect(1)
	s.settle()
	for _, kind := range []raftpb.MessageType{raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp} {
		for n := range 2 * readContext {
			m := &peerpb.RaftMessage{Group: 7, Type: uint32(kind), From: 2, To: 1, Term: 1,
				Context: make([]byte, n)}
			if kind == raftpb.MsgHeartbeat {
				m.From, m.To = 1, 2
			}
			s.replicas[keys.ReplicaID(m.To)].group.Step(m)
			s.settle()
		}
	}
	s.replicas[1].group.ReadIndex([]byte("12345678"))
	s.trace.Reset()
	s.collect(1)
	s.settle()
	if got := s.trace.String(); got != "r1 may read at index 2\n" {
		t.Errorf("%q", got)
	}
}

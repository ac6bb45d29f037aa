package group

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// TestForgedEntriesBeforeForgedAck: entries that a leader does not take in do not make it believe
// an acknowledgement of them.
func TestForgedEntriesBeforeForgedAck(t *testing.T) {
	s := threeReplicas(t)
	s.lead(1)
	leader := s.replicas[1].group
	term := leader.Leadership().Term
	match := func() (match uint64) {
		leader.Followers(func(id keys.ReplicaID, p Progress) {
			if id == 2 {
				match = p.Match
			}
		})
		return match
	}
	before := match()
	var entries []*peerpb.Entry
	for i := range uint64(100) {
		entries = append(entries, &peerpb.Entry{Index: before + 1 + i, Term: term})
	}
	forge := func(m *peerpb.RaftMessage) Refusal {
		m.Group, m.From, m.To, m.Term = 7, 2, 1, term
		return leader.Step(m)
	}
	forge(&peerpb.RaftMessage{
		Type: uint32(raftpb.MsgApp), Index: before, LogTerm: term, Entries: entries,
	})
	why := forge(&peerpb.RaftMessage{Type: uint32(raftpb.MsgAppResp), Index: before + 100})
	if why != RefusedAck {
		t.Errorf("the acknowledgement: %q", why)
	}
	if after := match(); after != before {
		t.Errorf("the follower has %d, the leader believes %d", before, after)
	}
}

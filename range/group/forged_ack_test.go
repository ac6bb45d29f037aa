package group

import (
	"fmt"
	"strings"
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

// TestDeniedAcknowledgement: a follower does not have what it, or a message in its name, has
// acknowledged. Its leader asks it again with each tick at most: asked at once, it would deny it at
// once, and the two would keep each other busy for ever.
func TestDeniedAcknowledgement(t *testing.T) {
	s := threeReplicas(t)
	s.lead(1)
	propose := func(value string) {
		g := s.replicas[1].group
		if err := g.Propose(g.Leadership().Term, [][]byte{[]byte(value)}); err != nil {
			t.Fatal(err)
		}
		s.collect(1)
		s.settle()
	}
	s.cut[[2]uint64{1, 2}] = true
	propose("a")
	s.cut[[2]uint64{1, 2}] = false
	leader := s.replicas[1].group
	term, last := leader.Leadership().Term, s.replicas[1].index
	if why := leader.Step(&peerpb.RaftMessage{Group: 7, From: 2, To: 1, Term: term,
		Type: uint32(raftpb.MsgAppResp), Index: last}); why != "" {
		t.Fatalf("the acknowledgement: %q", why)
	}
	leader.Unreachable(2) // a message was lost, so Raft asks before it sends more
	propose("b")          // settle fails if there is no end
	s.tick(5)
	if !strings.Contains(s.trace.String(), string(RefusedAck)) {
		t.Errorf("the leader refuses nothing: %s", s.trace.String())
	}
	if got := fmt.Sprint(s.replicas[3].applied); got != "[a b]" {
		t.Errorf("the other follower has %s", got)
	}
	// Another leader knows nothing of what was acknowledged.
	for _, id := range []uint64{2, 3} {
		s.cut[[2]uint64{1, id}], s.cut[[2]uint64{id, 1}] = true, true
	}
	s.tick(60)
	if got := fmt.Sprint(s.replicas[2].applied); got != "[a b]" {
		t.Errorf("the follower has %s under another leader", got)
	}
}

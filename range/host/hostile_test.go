package host

import (
	"fmt"
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// forge hands a message to a host as if it came from another one's replica of group 100.
func (c *cluster) forge(to uint64, m *peerpb.RaftMessage) {
	m.Group, m.To = 100, to
	c.hosts[to].host.HandleMessages(m.From, &peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{m}})
}

// restart crashes all hosts and starts them again, with all groups awake.
func (c *cluster) restart() {
	for id := range c.hosts {
		c.crash(id)
	}
	for id := range c.hosts {
		c.start(id)
	}
	for _, n := range c.hosts {
		n.host.Groups(func(g *Group) { g.Wake() })
	}
}

// TestOneForgedMessage: a single message that cannot be leaves a group as it was, at once and after a restart of all.
func TestOneForgedMessage(t *testing.T) {
	for name, forged := range map[string]*peerpb.RaftMessage{
		"heartbeat of a term that no election reached": {Type: uint32(raftpb.MsgHeartbeat), Term: math.MaxUint64 - 1},
		"vote of the last term":                        {Type: uint32(raftpb.MsgVote), Term: math.MaxUint64, Index: 1 << 40, LogTerm: 1 << 40},
		"no pre-vote, in the last term":                {Type: uint32(raftpb.MsgPreVoteResp), Term: math.MaxUint64, Reject: true},
		"heartbeat that commits what is not there":     {Type: uint32(raftpb.MsgHeartbeat), Commit: math.MaxInt64},
		"heartbeat that commits one entry too many":    {Type: uint32(raftpb.MsgHeartbeat), Commit: 5},
		"request for a vote without a term":            {Type: uint32(raftpb.MsgVote), Index: 100, LogTerm: 100},
		"entries behind the end of all":                {Type: uint32(raftpb.MsgApp), Index: math.MaxUint64, Entries: []*peerpb.Entry{{}}},
		"acknowledgement of what was never sent":       {Type: uint32(raftpb.MsgAppResp), Index: math.MaxUint64 - 7},
		"answer to reads that nobody asked for":        {Type: uint32(raftpb.MsgHeartbeatResp), Context: []byte("\xff\xff\xff\xff\xff\xff\xff\x7f")},
		"read of a follower, without its number":       {Type: uint32(raftpb.MsgReadIndex)},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, c *cluster) {
				c.create(100)
				c.propose(100, "a")
				leader, term := c.awaitLeader(100)
				for to := range c.hosts {
					for from := range c.hosts {
						if to == from {
							continue
						}
						m := proto.Clone(forged).(*peerpb.RaftMessage)
						m.From = from
						if m.Term == 0 && m.Type != uint32(raftpb.MsgVote) {
							m.Term = term
						}
						c.forge(to, m)
					}
				}
				c.propose(100, "b")
				for id, n := range c.hosts {
					if err := n.host.Group(100).Failed(); err != nil {
						t.Fatalf("host %d: %.200v", id, err)
					}
				}
				if now, newTerm := c.awaitLeader(100); now != leader || newTerm != term {
					t.Errorf("host %d leads in term %d; it was host %d in term %d", now.id, newTerm, leader.id, term)
				}
				c.restart()
				c.propose(100, "c")
				for _, n := range c.hosts {
					if _, values, _ := n.machines[100].state(); fmt.Sprint(values) != "[a b c]" {
						t.Errorf("host %d has %v", n.id, values)
					}
				}
			})
		})
	}
}

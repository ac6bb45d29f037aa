package host

import (
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A replica hears what came a moment before it opened: the one that campaigns when it is there
// alone need not do so again.
func TestMessagesBeforeTheReplica(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		const id = 100
		for n := uint64(1); n <= 3; n++ {
			identity := raftlog.Identity{Group: id, Replica: keys.ReplicaID(n),
				Voters: []keys.ReplicaID{1, 2, 3}}
			if err := c.hosts[n].host.Log().Create(identity); err != nil {
				t.Fatal(err)
			}
			c.open(c.hosts[n], identity, true)
			if n == 1 {
				c.hosts[1].host.Group(id).Campaign()
			}
			synctest.Wait() // what was asked has come
		}
		synctest.Wait()
		if l := c.hosts[1].host.Group(id).leadership.Load(); !l.IsLeader {
			t.Errorf("the replica that campaigned first does not lead: %v", l)
		}
	})
}

// Messages for replicas that never open take little, and are forgotten.
func TestEarlyMessagesAreBounded(t *testing.T) {
	var e pendingVotes
	held := 0
	message := func(group uint64, kind raftpb.MessageType, context []byte) *peerpb.RaftMessage {
		return &peerpb.RaftMessage{Group: group, Type: uint32(kind), Context: context}
	}
	for i := range uint64(10_000) {
		for range 10 {
			if e.hold(2, message(i, raftpb.MsgVote, nil), 5) {
				held++
			}
		}
	}
	if len(e.of) != maxPendingGroups || held != 10*maxPendingGroups {
		t.Errorf("%d messages of %d groups are held", held, len(e.of))
	}
	if n := len(e.take(7, 6)); n != maxPendingOfGroup {
		t.Errorf("%d of a group are", n)
	}
	if n := len(e.take(7, 6)); n != 0 {
		t.Errorf("%d of a group are taken twice", n)
	}
	if n := len(e.take(8, 6+pendingVoteLife)); n != 0 {
		t.Errorf("%d are held for ever", n)
	}
	if !e.hold(2, message(20_000, raftpb.MsgVote, nil), 6+pendingVoteLife) ||
		!e.hold(2, message(20_001, raftpb.MsgVote, nil), 6+pendingVoteLife) {
		t.Error("there is no room for later ones")
	}
	for _, m := range []*peerpb.RaftMessage{
		message(20_001, raftpb.MsgVoteResp, nil),
		message(20_001, raftpb.MsgApp, nil),
		message(20_001, raftpb.MsgHeartbeat, nil),
		message(20_001, raftpb.MsgSnap, nil),
		message(20_001, raftpb.MsgVote, make([]byte, maxPendingBytes)),
	} {
		if e.hold(2, m, 6+pendingVoteLife) {
			t.Errorf("%v is held", m)
		}
	}
	if n := proto.Size(e.take(20_001, 6+pendingVoteLife)[0].message); n > maxPendingBytes {
		t.Errorf("%d bytes", n)
	}
}

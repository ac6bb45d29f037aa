package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A follower waits for a leader that is silent, because it may only be slow: for an election
// timeout, and for a random time more, so that two followers do not begin at once. Where the host
// sees that the process of the leader is gone, neither is needed. What is needed is the end of the
// promise (leasePromise): until then the leader's lease may stand, for all that the follower knows.
//
// The host may be wrong, and nothing depends on it. A leader that lives sends heartbeats: each
// extends the promise of the follower that answers it, and ends the belief. A follower that
// campaigns all the same asks for pre-votes, which a follower that hears the leader does not give.

// succession is what a follower does about a leader whose process is gone.
type succession struct {
	// believed: the process that led in the present term is gone, as the host says. A message of
	// that leader ends it, and so does another leader, or another term.
	believed bool
	// due: this replica is to campaign. The leader is forgotten since the promise to it has run out;
	// or the replica has restarted, has withheld its votes for long enough, and found no leader.
	due bool
	// tries counts the campaigns. They are few: what they do not achieve is left to Raft's timer.
	tries int
}

// successionTries bounds the campaigns for a leader whose process is gone. The other followers may
// hear of its end some ticks later.
const successionTries = 3

// LeaderGone tells the group that the process of its leader is gone. What comes of that depends on
// Succeed.
func (g *Group) LeaderGone() {
	if g.leader != 0 && g.leader != g.config.Self {
		g.succession.believed = true
	}
}

// Succeed is called at ticks. A replica whose leader's process is gone, and whose promise has run
// out, campaigns ahead of its election timer if turn allows it: campaigns of very many groups at
// once would keep each other from ending. turn is called only for a replica that can campaign, and
// does not leave that to others.
func (g *Group) Succeed(now int64, turn func() bool) {
	g.forgetGone(now)
	s := &g.succession
	if !s.due || g.sleep.asleep || g.withholdVotes || g.aversion.waits(g.config.ElectionTicks) ||
		!g.Configuration().Electable(g.config.Self) {
		return
	}
	// Raft may have heard of a new leader since the last Output.
	status := g.node.BasicStatus()
	if status.Lead != 0 || status.RaftState == raft.StateCandidate {
		return
	}
	// A replica that has asked for votes already has the better chance: it gets this one's.
	if len(g.leasePromise.votes) > 0 || !turn() {
		return
	}
	if s.tries++; s.tries >= successionTries {
		s.due = false
	}
	g.Campaign()
}

// forgetGone has Raft forget a leader whose process is gone, when nothing is owed to it any more:
// a follower that knows a leader would not vote for another one yet.
func (g *Group) forgetGone(now int64) {
	s := &g.succession
	if !s.believed || g.withholdVotes || g.leasePromise.stands(now) {
		return
	}
	// What came since the last Output may have brought another leader, which must not be forgotten.
	if status := g.node.BasicStatus(); status.Lead != uint64(g.leader) ||
		status.GetTerm() != g.term {
		return
	}
	*s = succession{due: true}
	if err := g.node.ForgetLeader(); err != nil {
		g.config.Logger.Debug("the leader is not forgotten", "group", g.config.ID, "error", err)
	}
}

// heard ends the belief that the process of the leader is gone, if a message is one that only a
// leader sends, in the present term.
func (s *succession) heard(g *Group, m *peerpb.RaftMessage) {
	switch raftpb.MessageType(m.GetType()) {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.GetTerm() == g.term {
			s.believed = false
		}
	}
}

// observed is told when the leader or the term is another one than before.
func (s *succession) observed(leader keys.ReplicaID, newTerm bool) {
	if leader != 0 || newTerm {
		*s = succession{}
	}
}

// keeps says whether a request for a vote that a promise forbids is looked at again when the
// promise has run out: soon, if the process of the leader is gone. No replica has more than one of
// its requests kept, the latest one.
func (s *succession) keeps(kept []*raftpb.Message, m *raftpb.Message) bool {
	if !s.believed {
		return false
	}
	for i, old := range kept {
		if old.GetFrom() == m.GetFrom() {
			kept[i] = m
			return false
		}
	}
	return true
}

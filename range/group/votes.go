package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// considerVotes passes to Raft the requests for votes that no promise forbids. The others are
// dropped, as Raft drops them while it has heard a leader lately, and the candidate asks again; or
// they wait for the end of the promise, if the leader's process is gone.
func (g *Group) considerVotes(now int64) {
	g.forgetGone(now)
	votes := g.leasePromise.votes
	kept := votes[:0]
	for _, m := range votes {
		switch {
		case !g.leasePromise.stands(now) && now >= g.lease.expiry():
			g.considerVote(m)
		case g.succession.keeps(kept, m):
			kept = append(kept, m)
		}
	}
	clear(votes[len(kept):])
	g.leasePromise.votes = kept
}

// considerVote passes a request for a vote to Raft.
func (g *Group) considerVote(m *raftpb.Message) {
	g.aversion.asked(m, g.config.Storage, g.config.ElectionTicks)
	if !g.defers(m) {
		g.step(m)
	}
}

// defers puts a request for a vote off if tieBreak requires it, and reports whether it did.
func (g *Group) defers(m *raftpb.Message) bool {
	t := &g.tieBreak
	if m.GetType() != raftpb.MsgPreVote || t.index == 0 || m.GetFrom() < uint64(g.config.Self) ||
		m.GetIndex() != t.index || m.GetLogTerm() != t.term ||
		g.node.BasicStatus().RaftState != raft.StatePreCandidate {
		return false
	}
	for i, old := range t.later {
		if old.GetFrom() == m.GetFrom() {
			t.later[i] = m
			return true
		}
	}
	t.later = append(t.later, m)
	return true
}

// LeaderGone tells the group that the process of its leader is gone. The replica acts on it in
// Succeed.
func (g *Group) LeaderGone() {
	if g.leader != 0 && g.leader != g.config.Self {
		g.succession.believed = true
	}
}

// Succeed is called at ticks. A replica whose leader's process is gone, and whose promise has run
// out, campaigns ahead of its election timer if turn allows it: campaigns of very many groups at
// once would keep each other from ending. turn is called only for a replica that can campaign and
// is not leader-averse.
func (g *Group) Succeed(now int64, turn func() bool) {
	g.forgetGone(now)
	s := &g.succession
	if !s.due || g.sleep.asleep || g.withholdVotes || g.aversion.waits(g.config.ElectionTicks) ||
		!g.Configuration().Electable(g.config.Self) {
		return
	}
	// Raft may have learned of a new leader since the last Output.
	status := g.node.BasicStatus()
	if status.Lead != 0 || status.RaftState == raft.StateCandidate {
		return
	}
	// A replica that has already asked for votes has the better chance: it gets this replica's
	// vote.
	if len(g.leasePromise.votes) > 0 || !turn() {
		return
	}
	if s.tries++; s.tries >= successionTries {
		s.due = false
	}
	g.Campaign()
}

// forgetGone makes Raft forget a leader whose process is gone, once the promise to it has ended: a
// follower that knows a leader would not vote for another one yet.
func (g *Group) forgetGone(now int64) {
	s := &g.succession
	if !s.believed || g.withholdVotes || g.leasePromise.stands(now) {
		return
	}
	// A message since the last Output may have brought another leader, which must not be forgotten.
	if status := g.node.BasicStatus(); status.Lead != uint64(g.leader) ||
		status.GetTerm() != g.term {
		return
	}
	*s = succession{due: true}
	if err := g.node.ForgetLeader(); err != nil {
		g.config.Logger.Debug("the leader is not forgotten", "group", g.config.ID, "error", err)
	}
}

// heard ends the belief that the leader's process is gone, if only the present term's leader can
// have sent the message.
func (s *succession) heard(g *Group, m *peerpb.RaftMessage) {
	switch raftpb.MessageType(m.GetType()) {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.GetTerm() == g.term {
			s.believed = false
		}
	}
}

// SetLeaderAverse keeps this replica from campaigning as long as another one may do so, because it
// would lead badly (its disk stalls, or is full). It still votes and takes over what is handed to
// it, and in a group that has known no leader for averseTicks election timeouts it campaigns after
// all. It does not hand over leaderships by itself: that is the owner's decision.
func (v *voting) SetLeaderAverse(averse bool) { v.aversion.on = averse }

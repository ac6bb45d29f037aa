package group

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// WellFormed checks a message on its own, without this replica's state. It may be called from any
// goroutine.
func (g *Group) WellFormed(m *peerpb.RaftMessage) Refusal {
	configuration := g.Configuration()
	if m.GetTo() != uint64(g.config.Self) || m.GetFrom() == uint64(g.config.Self) ||
		m.GetFrom() == 0 || !configuration.knows(keys.ReplicaID(m.GetFrom())) {
		return RefusedSender
	}
	if m.GetWake() {
		return ""
	}
	kind := raftpb.MessageType(m.GetType())
	if !acceptable(kind) {
		return RefusedType
	}
	if m.GetTerm() == 0 || m.GetTerm() > MaxTerm || m.GetLogTerm() > m.GetTerm() {
		return RefusedTerm
	}
	if max(m.GetIndex(), m.GetCommit(), m.GetRejectHint()) > MaxIndex {
		return RefusedIndex
	}
	if !contextFits(kind, m.GetContext()) {
		return RefusedContext
	}
	if len(m.GetEntries()) > 0 && (kind != raftpb.MsgApp || !consecutive(m) ||
		m.GetIndex() == 0 && configuration.Empty()) {
		return RefusedEntries
	}
	if (kind == raftpb.MsgSnap) != (m.GetSnapshot() != nil) ||
		kind == raftpb.MsgSnap && !g.ours(m) {
		return RefusedSnapshot
	}
	return ""
}

func contextFits(kind raftpb.MessageType, context []byte) bool {
	if len(context) == 0 {
		return true
	}
	switch kind {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		return len(context) == readContext // Raft reads it as the number of a read
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return string(context) == campaignTransfer
	}
	return false
}

// consecutive reports whether the entries follow each other and the entry before them.
func consecutive(m *peerpb.RaftMessage) bool {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		index++
		if e == nil || e.GetIndex() != index || e.GetTerm() < max(term, 1) ||
			e.GetTerm() > m.GetTerm() || !entryFits(e) {
			return false
		}
		term = e.GetTerm()
	}
	return index <= MaxIndex
}

// entryFits reports whether a leader can have appended an entry.
func entryFits(e *peerpb.Entry) bool {
	switch raftpb.EntryType(e.GetType()) {
	case raftpb.EntryNormal:
		return true
	case raftpb.EntryConfChangeV2:
		c := &raftpb.ConfChangeV2{}
		return proto.Unmarshal(e.GetData(), c) == nil && len(c.Context) > 0
	}
	return false
}

// ours reports whether a replica of this group can have sent a snapshot.
func (g *Group) ours(m *peerpb.RaftMessage) bool {
	s := m.GetSnapshot()
	if s.GetIndex() == 0 || s.GetIndex() > MaxIndex || s.GetTerm() == 0 || s.GetTerm() > m.GetTerm() {
		return false
	}
	c, ok := plausibleConfiguration(s.GetConfState())
	return ok && c.Role(g.config.Self) != 0
}

// believable checks a well-formed message against what this replica knows. It may change the
// message.
func (g *Group) believable(m *peerpb.RaftMessage) Refusal {
	p := &g.validator
	if m.GetTerm() > max(g.term, p.base)+maxJump {
		p.claim(m.GetFrom(), m.GetTerm())
		g.wakeUp(false) // so that ticks are counted
		return RefusedJump
	}
	switch raftpb.MessageType(m.GetType()) {
	case raftpb.MsgHeartbeat:
		if m.GetCommit() > p.most {
			p.lost.said = true
			if p.broken == nil && p.lost.ticks >= lostTimeouts*g.config.ElectionTicks {
				p.broken = fmt.Errorf("replica %d says again and again that entry %d is "+
					"committed, and the log ends with %d: "+
					"entries that this replica has acknowledged are gone", m.GetFrom(), m.GetCommit(), p.most)
			}
			g.wakeUp(false)
			return RefusedCommit
		}
		if m.GetTerm() >= g.term {
			p.lost = persistence{}
		}
	case raftpb.MsgHeartbeatResp:
		if len(m.GetContext()) == 0 ||
			m.GetTerm() == p.reads.term &&
				binary.LittleEndian.Uint64(m.GetContext()) <= p.reads.highest {
			break
		}
		if g.leadsIn(m.GetTerm()) {
			return RefusedRead
		}
		m.Context = nil // a read of another term
	case raftpb.MsgAppResp:
		// An Output contained all that a leader has sent. A late answer to a former leadership may
		// acknowledge more, and Raft drops it.
		if !m.GetReject() && m.GetIndex() > p.last && g.leadsIn(m.GetTerm()) {
			return RefusedAck
		}
		if m.GetReject() && g.denies(m) {
			return RefusedAck
		}
	case raftpb.MsgApp:
		if n := len(m.GetEntries()); n > 0 {
			p.mayEnd(m.GetIndex() + uint64(n))
		}
	case raftpb.MsgSnap:
		p.mayEnd(m.GetSnapshot().GetIndex())
	}
	p.contradict(m.GetFrom())
	return ""
}

// denies reports whether a follower says that it lacks the last entry that it has acknowledged to
// this leader. Raft would probe at once from that entry, as it can from nowhere else, and so the
// two would probe and deny without a pause for as long as this replica leads. If the denial is
// dropped, Raft probes only when the follower answers the next heartbeat.
func (g *Group) denies(m *peerpb.RaftMessage) (denied bool) {
	if !g.leadsIn(m.GetTerm()) {
		return false
	}
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p trackerProgress) {
		if id == m.GetFrom() {
			denied = p.State == stateProbe && m.GetIndex() == p.Match
		}
	})
	return denied
}

// leadsIn reports whether Raft leads in a term at this moment.
func (g *Group) leadsIn(term uint64) bool {
	status := g.node.BasicStatus()
	return status.RaftState == raft.StateLeader && status.HardState.GetTerm() == term
}

// acceptable reports whether a peer may send messages of this type. Peers send no local messages
// and no proposals, and forward no reads, which are asked of leaders only.
func acceptable(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote,
		raftpb.MsgPreVoteResp,
		raftpb.MsgSnap, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// tickValidator accepts a claim that has lasted.
func (g *Group) tickValidator() {
	p := &g.validator
	p.lost.tick()
	if g.leader != 0 && !g.isLeader {
		// Followers do not talk to each other, so nothing would contradict a forged claim here; the
		// leader hears the true terms.
		return
	}
	for i := range p.claims {
		c := &p.claims[i]
		if c.tick(); c.ticks >= claimTimeouts*g.config.ElectionTicks {
			g.config.Logger.Warn("the group is in a term that is far ahead, as a peer says again "+
				"and again",
				"group", g.config.ID, "term", g.term, "peer", keys.ReplicaID(c.from), "far", c.term)
			p.base = max(p.base, c.term)
			p.contradict(c.from)
			return
		}
	}
}

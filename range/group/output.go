package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Output is what a group wants done. The host may do all of it at the same time; what depends on
// something durable is inside Append and Apply as responses.
type Output struct {
	// Messages go to peers now.
	Messages []*peerpb.RaftMessage
	// Snapshots are messages to be sent together with the state.
	Snapshots []*peerpb.RaftMessage
	// Append is to be stored; then its Responses go out. Nil when there is nothing to store.
	Append *raftpb.Message
	// Apply holds committed entries to be applied; then its Responses go out. Nil when there are
	// none.
	Apply *raftpb.Message
	// Reads are answers to ReadIndex.
	Reads []raft.ReadState
	// Leadership is set when it changed.
	Leadership *Leadership
	// Committed is up to where the log is known to be committed, if that has moved; else 0. It is
	// known here before Messages tell others.
	Committed uint64
}

// Ready takes what the group wants done; false when there is nothing. now is the host's monotonic
// clock, read before the heartbeats in the output are sent.
func (g *Group) Ready(now int64, out *Output) bool {
	out.Messages, out.Snapshots, out.Reads = out.Messages[:0], out.Snapshots[:0], out.Reads[:0]
	out.Append, out.Apply, out.Leadership, out.Committed = nil, nil, nil, 0
	g.now = now
	g.considerVotes(now)
	if len(g.sleep.quiesce) > 0 {
		out.Messages = append(out.Messages, g.sleep.quiesce...)
		clear(g.sleep.quiesce)
		g.sleep.quiesce = g.sleep.quiesce[:0]
	}
	if !g.node.HasReady() {
		g.validator.logEnds(g.validator.last)
		g.lease.credit(g.isLeader, g.term, now)
		told := g.tellLeadership(out)
		return len(out.Messages) > 0 || told
	}
	rd := g.node.Ready()
	if invariants.Enabled {
		checkInvariantHardState(g, rd.HardState)
	}
	if rd.HardState != nil {
		out.Committed = rd.HardState.GetCommit()
	}
	g.observe(rd, out)
	g.lease.credit(g.isLeader, g.term, now)
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			if index := m.GetSnapshot().GetMetadata().GetIndex(); index > 0 {
				g.validator.last = index
			}
			if n := len(m.Entries); n > 0 {
				g.appended = m.Entries[n-1].GetIndex()
				g.validator.last = g.appended
				g.noteOwn(m.Entries)
			}
			g.commitWithChange(m)
			if !g.commitAlone(m) {
				out.Append = m
			}
		case raft.LocalApplyThread:
			out.Apply = m
		default:
			g.outgoing(m, now, out)
		}
	}
	g.validator.logEnds(g.validator.last)
	g.heartbeatAnswered = false
	clear(g.echo)
	for _, r := range rd.ReadStates {
		if string(r.RequestCtx) != string(wakeRequest) {
			// INVARIANT: no read is answered below the leader's first entry. Raft sees to it, but for a
			// leader that is the only voter: that gives what it knows to be committed, and after a
			// restart its log has more, which was acknowledged.
			if g.ownTerm == g.term {
				r.Index = max(r.Index, g.own)
			}
			out.Reads = append(out.Reads, r)
			g.reads = max(0, g.reads-1)
		}
	}
	return true
}

// checkInvariantHardState checks what Raft wants stored against what the storage has: terms and
// commit indices never fall, and of a term there is one vote.
func checkInvariantHardState(g *Group, hard *raftpb.HardState) {
	if hard == nil || raft.IsEmptyHardState(hard) {
		return
	}
	stored := &g.stored
	invariants.Check(hard.GetTerm() >= stored.term && hard.GetCommit() >= stored.commit,
		"group %s, replica %s: term %d and commit index %d follow term %d and commit index %d",
		g.config.ID, g.config.Self, hard.GetTerm(), hard.GetCommit(), stored.term, stored.commit)
	invariants.Check(hard.GetTerm() > stored.term || stored.vote == 0 ||
		hard.GetVote() == stored.vote, "group %s, replica %s: votes for %x and %x in term %d",
		g.config.ID, g.config.Self, stored.vote, hard.GetVote(), hard.GetTerm())
}

// noteOwn notes where the first entry of the term is in which this replica leads. A leader appends
// one as it begins.
func (g *Group) noteOwn(entries []*raftpb.Entry) {
	if !g.isLeader || g.ownTerm == g.term {
		return
	}
	for _, e := range entries {
		if e.GetTerm() == g.term {
			g.own, g.ownTerm = e.GetIndex(), g.term
			return
		}
	}
}

// observe follows term, leader and role.
func (g *Group) observe(rd raft.Ready, out *Output) {
	wasLeader, oldTerm, oldLeader := g.isLeader, g.term, g.leader
	if rd.HardState != nil && !raft.IsEmptyHardState(rd.HardState) &&
		rd.HardState.GetTerm() != g.term {
		g.term, g.abdicated, g.handed = rd.HardState.GetTerm(), false, false
	}
	if rd.SoftState != nil {
		g.leader = keys.ReplicaID(rd.SoftState.Lead)
		g.isLeader = rd.SoftState.RaftState == raft.StateLeader
		if !g.isLeader {
			g.abdicated = false
		}
	}
	if g.abdicated {
		g.isLeader, g.leader = false, 0
	}
	switch {
	case g.isLeader && (!wasLeader || g.term != oldTerm):
		g.lease.begin(g.term)
	case !g.isLeader && wasLeader:
		g.leasePromise.keep(g.lease.expiry())
		g.lease.end()
	}
	if invariants.Enabled {
		invariants.Check(g.term >= oldTerm, "group %s, replica %s: term %d follows term %d",
			g.config.ID, g.config.Self, g.term, oldTerm)
		invariants.Check(g.term != oldTerm || oldLeader == 0 || g.leader == 0 || g.leader == oldLeader,
			"group %s, replica %s: term %d has the leaders %s and %s", g.config.ID, g.config.Self,
			g.term, oldLeader, g.leader)
		invariants.Check(g.isLeader == (g.leader == g.config.Self),
			"group %s, replica %s: %s leads in term %d, and this replica does: %t", g.config.ID,
			g.config.Self, g.leader, g.term, g.isLeader)
	}
	if g.isLeader != wasLeader || g.term != oldTerm || g.leader != oldLeader {
		g.tell = true
		g.succession.observed(g.leader, g.term != oldTerm)
	}
	if !g.isLeader || g.term != oldTerm {
		g.reads = 0 // Raft forgets them with the leadership
	}
	g.tellLeadership(out)
}

func (g *Group) tellLeadership(out *Output) bool {
	if !g.tell {
		return false
	}
	g.tell = false
	l := g.Leadership()
	out.Leadership = &l
	return true
}

// Outgoing turns a response of a storage thread into a message for a peer.
func (g *Group) Outgoing(m *raftpb.Message) *peerpb.RaftMessage { return outbound(g.config.ID, m) }

func (g *Group) outgoing(m *raftpb.Message, now int64, out *Output) {
	switch m.GetType() {
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		return // of a leader that was deposed in this moment; the host has its reads fail
	}
	if g.onlyCommit(m) || g.aversion.holdsBack(m, g.config.ElectionTicks) ||
		g.leasePromise.holdsBack(m, now) {
		return
	}
	g.tieBreak.begun(m)
	g.validator.askedAbout(m)
	p := outbound(g.config.ID, m)
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		p.Sent = uint64(now)
	case raftpb.MsgHeartbeatResp:
		// What came with the heartbeat may have begun a new term. Then the answer is of the old
		// one, whose leader must not build on it: in the new one this replica may have voted for
		// another already.
		if m.GetTerm() == g.term {
			p.Sent = g.echo[keys.ReplicaID(m.GetTo())]
		}
		if p.Sent != 0 {
			g.leasePromise.give(now)
		}
	case raftpb.MsgSnap:
		out.Snapshots = append(out.Snapshots, p)
		return
	}
	out.Messages = append(out.Messages, p)
}

// commitAlone says whether an append stores a new commit index and nothing else. It is left out: a
// commit index is found again from the other replicas and from what was applied, so it needs no
// disk, and no request waits for it.
func (g *Group) commitAlone(m *raftpb.Message) bool {
	if len(m.Entries) == 0 && len(m.Responses) == 0 && m.Snapshot == nil &&
		m.GetTerm() == g.stored.term && m.GetVote() == g.stored.vote {
		return true
	}
	if m.Term != nil {
		if len(m.Entries) > 0 || m.GetTerm() != g.stored.term || m.GetVote() != g.stored.vote {
			g.stored.commit = m.GetCommit() // otherwise the log does not write it
		}
		g.stored.term, g.stored.vote = m.GetTerm(), m.GetVote()
	}
	return false
}

// commitWithChange has the commit index stored with an entry that changes the configuration, and
// with those behind it until it is known to be committed. Without the former a replica whose state
// has rolled back could hold the end of a joint configuration without knowing that its beginning is
// committed, and be elected by the voters from before. Without the latter replicas whose states
// have rolled back could not know that the change was committed, and look for voters that are gone.
func (g *Group) commitWithChange(m *raftpb.Message) {
	for _, e := range m.Entries {
		if e.GetType() == raftpb.EntryConfChangeV2 {
			g.lastChange = e.GetIndex()
		}
	}
	if m.Term != nil || g.stored.commit >= g.lastChange {
		return
	}
	hard := g.node.BasicStatus().HardState
	m.Term, m.Vote, m.Commit = hard.Term, hard.Vote, hard.Commit
}

// onlyCommit says whether a message tells a follower of a new commit index and nothing else. It is
// not sent: the follower learns of it with the next entries, or with the next heartbeat. Without it
// an entry costs half as many messages, and hardly a request waits for it: where followers are to
// answer reads from what they have just applied, the leader asks for a read index, which tells
// them. One that has not acknowledged all of it by then is told when it has. Config.TellCommits has
// it sent.
//
// A message without entries has another use: it asks a follower that has not acknowledged all it
// was sent whether something was lost. Raft asks so when the follower answers a heartbeat, and then
// the message is sent. At any other time a follower that is being sent entries as they come (the
// one of two that is slower, whenever the other has made the quorum) has an answer on its way.
func (g *Group) onlyCommit(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgApp || len(m.Entries) > 0 || g.config.TellCommits {
		return false
	}
	tells := m.GetCommit() <= g.told
	needless := false
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p trackerProgress) {
		if id == m.GetTo() {
			needless = p.State == stateReplicate && (p.Match >= m.GetIndex() && !tells ||
				p.Match < m.GetIndex() && !g.heartbeatAnswered)
		}
	})
	return needless
}

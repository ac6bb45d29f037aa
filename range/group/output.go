package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Output is what a group wants done. The host may do all of it at the same time; messages that
// depend on a durable write are responses inside Append and Apply.
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
	// Committed is the index up to which the log is known to be committed, if that has grown since
	// the last Output; else 0. The host may use it before Messages are sent.
	Committed uint64
}

// Ready returns what the group wants done; false if nothing. now is the host's monotonic clock,
// read before the heartbeats in the output are sent.
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
				g.stored.appended = m.Entries[n-1].GetIndex()
				g.validator.last = g.stored.appended
				if g.isLeader {
					g.reads.noteOwn(m.Entries, g.term)
				}
			}
			g.stored.commitWithChange(m, g.node)
			if !g.stored.commitAlone(m) {
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
			// INVARIANT: no read is answered with an index below the leader's first entry. Raft
			// sees to this, except for a leader that is the only voter: Raft returns the index that
			// the leader knows to be committed, and after a restart the log has more entries, which
			// were acknowledged.
			if g.reads.ownTerm == g.term {
				r.Index = max(r.Index, g.reads.own)
			}
			out.Reads = append(out.Reads, r)
			g.reads.open = max(0, g.reads.open-1)
		}
	}
	return true
}

// checkInvariantHardState checks Raft's new hard state against the stored one: terms and commit
// indices never fall, and each term has one vote.
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

func (g *Group) tellLeadership(out *Output) bool {
	if !g.tell {
		return false
	}
	g.tell = false
	leads := g.Leadership()
	out.Leadership = &leads
	return true
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
		g.reads.open = 0 // Raft drops them when the leadership ends
	}
	g.tellLeadership(out)
}

// Outgoing turns a response of a storage thread into a message for a peer.
func (g *Group) Outgoing(m *raftpb.Message) *peerpb.RaftMessage { return outbound(g.config.ID, m) }

func (g *Group) outgoing(m *raftpb.Message, now int64, out *Output) {
	switch m.GetType() {
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		return // from a leader that has just been deposed; the host fails its reads
	}
	if !g.config.TellCommits && g.commits.needless(m, g.node) ||
		g.aversion.holdsBack(m, g.config.ElectionTicks) || g.leasePromise.holdsBack(m, now) {
		return
	}
	g.tieBreak.begun(m)
	g.validator.askedAbout(m)
	p := outbound(g.config.ID, m)
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		p.Sent = uint64(now)
	case raftpb.MsgHeartbeatResp:
		// Messages that came with the heartbeat may have begun a new term. The answer then belongs
		// to the old term, and its leader must not rely on it: in the new term this replica may
		// have voted for another one already.
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

package group

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Step takes a message from a peer. The group owns the message from here on. A message that Raft
// refuses is dropped, as a network may drop it. A message that no correct peer sends is dropped
// too, and the reason is returned.
func (g *Group) Step(m *peerpb.RaftMessage) Refusal {
	if why := g.WellFormed(m); why != "" {
		return why
	}
	if m.GetWake() {
		g.Wake()
		return ""
	}
	if why := g.believable(m); why != "" {
		return why
	}
	g.take(m)
	return ""
}

// take steps a message that was found valid.
func (g *Group) take(m *peerpb.RaftMessage) {
	kind := raftpb.MessageType(m.GetType())
	from := keys.ReplicaID(m.GetFrom())
	vote := asksForVote(kind, m.GetContext())
	if vote && (g.withholdVotes || g.Configuration().Empty() && !g.config.Founder) {
		return
	}
	if kind != raftpb.MsgHeartbeatResp && !m.GetSleep() {
		g.wakeUp(false)
	}
	if m.GetSent() != 0 {
		switch kind {
		case raftpb.MsgHeartbeat:
			if g.echo == nil {
				g.echo = make(map[keys.ReplicaID]uint64, 1)
			}
			// Of several heartbeats, answer the earliest: that answer promises less.
			if old, ok := g.echo[from]; !ok || m.GetSent() < old {
				g.echo[from] = m.GetSent()
			}
		case raftpb.MsgHeartbeatResp:
			g.lease.heard(from, m.GetTerm(), int64(m.GetSent()))
		}
	}
	if kind == raftpb.MsgHeartbeatResp {
		g.heartbeatAnswered = true
	}
	g.succession.heard(g, m)
	msg := inbound(m)
	if kind == raftpb.MsgHeartbeat && m.GetCommit() > g.validator.least {
		// Entries that came just before may have replaced that entry; the next heartbeat carries
		// the commit index again.
		msg.Commit = nil
	}
	switch {
	case vote && (g.leasePromise.until != 0 || g.isLeader):
		g.leasePromise.votes = append(g.leasePromise.votes, msg)
		return
	case vote:
		g.considerVote(msg)
		return
	}
	g.step(msg)
	if m.GetSleep() && kind == raftpb.MsgHeartbeat {
		g.maybeFollowToSleep(m)
	}
}

func (g *Group) step(m *raftpb.Message) {
	if err := g.node.Step(m); err != nil && !errors.Is(err, raft.ErrProposalDropped) &&
		!errors.Is(err, raft.ErrStepPeerNotFound) {
		g.config.Logger.Debug("raft message refused", "group", g.config.ID, "type",
			m.GetType().String(), "error", err)
	}
}

// StepLocal takes the response of a storage thread.
func (g *Group) StepLocal(m *raftpb.Message) error { return g.node.Step(m) }

// Tick advances the group's timers. It does nothing in a sleeping group. A leader that has had
// nothing to do for sleepAfter ticks (0: never) puts the group to sleep, even if followers for
// which away returns true are not reached (nil: no follower is away).
func (g *Group) Tick(sleepAfter int, away func(keys.ReplicaID) bool) {
	if g.sleep.asleep || g.maybeLeadToSleep(sleepAfter, away) {
		return
	}
	g.aversion.tick(g.leader)
	g.tickValidator()
	g.tieBreak.tick(&g.leasePromise)
	g.node.Tick()
	if g.abdicated {
		g.pushTransfer()
	}
}

// Propose appends entries to the log if this replica leads at term, all of them or none. Once Raft
// has refused some, this replica's leadership is over.
func (g *Group) Propose(term uint64, data [][]byte) error {
	g.wakeUp(false)
	g.sleep.idle = 0
	if !g.isLeader || g.term != term {
		return raft.ErrProposalDropped
	}
	boxes := make([]raftpb.Entry, len(data))
	entries := make([]*raftpb.Entry, len(data))
	for i, d := range data {
		boxes[i].Data = d
		entries[i] = &boxes[i]
	}
	self := uint64(g.config.Self)
	err := g.node.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &self, Entries: entries})
	if errors.Is(err, raft.ErrProposalDropped) {
		// Too much is uncommitted. Later entries must not be appended without this one.
		g.abdicate()
	}
	return err
}

// ReadIndex asks for a read index. The answer comes in an Output with the same request, or never,
// if the leader changes. Requests must be unique within a term.
func (g *Group) ReadIndex(request []byte) {
	g.Wake()
	g.sleep.idle = 0
	g.reads.open++
	g.told = max(g.told, g.node.BasicStatus().GetCommit())
	g.node.ReadIndex(request)
}

// Campaign starts an election. PreVote keeps it from disturbing a leader that the others hear.
func (g *Group) Campaign() {
	g.wakeUp(false)
	if !g.isLeader && !g.withholdVotes {
		if err := g.node.Campaign(); err != nil {
			g.config.Logger.Debug("campaign refused", "group", g.config.ID, "error", err)
		}
	}
}

// CampaignAgain restarts an election that has found too few pre-votes; an election in which votes
// are counted goes on.
func (g *Group) CampaignAgain() {
	if g.node.BasicStatus().RaftState != raft.StateCandidate {
		g.Campaign()
	}
}

package group

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Asleep says whether the group sleeps: it is not ticked, and sends nothing by itself.
func (s *sleep) Asleep() bool { return s.asleep }

// FallAsleep puts a freshly opened group to sleep; nothing happens in it until something wakes it.
func (s *sleep) FallAsleep() { s.asleep = true }

// Wake wakes a sleeping group for something to do. A leader lets its followers know at once, which
// renews its lease; a replica that knows no leader campaigns.
func (g *Group) Wake() {
	g.sleep.idle = 0
	g.wakeUp(true)
}

// WakeLeaderGone wakes the group because its leader's host is gone: the time that passed while it
// slept counts as time without a leader.
func (g *Group) WakeLeaderGone(ticks int) {
	if !g.sleep.asleep || g.isLeader {
		return
	}
	g.sleep.asleep, g.sleep.idle = false, 0
	if g.withholdVotes {
		return // it may owe a promise that it has forgotten
	}
	for range min(ticks, g.config.ElectionTicks) {
		g.node.TickQuiesced()
	}
}

func (g *Group) wakeUp(active bool) {
	if !g.sleep.asleep {
		return
	}
	g.sleep.asleep, g.sleep.idle, g.sleep.without = false, 0, nil
	if !active {
		return
	}
	switch {
	case g.isLeader:
		// A read index whose answer no caller waits for: it sends a heartbeat to all at once.
		g.node.ReadIndex(wakeRequest)
	case g.leader == 0 && !g.withholdVotes:
		if err := g.node.Campaign(); err != nil {
			g.config.Logger.Debug("campaign refused", "group", g.config.ID, "error", err)
		}
	}
}

// wakeRequest is the read request that wakeUp makes; shorter than any real one, so that they cannot
// be confused.
var wakeRequest = []byte("wake-up")

// maybeLeadToSleep puts a group to sleep that has been idle for a number of ticks: all followers
// are there and have, committed and applied, all there is, and no caller waits for an answer. What
// is under way to a disk is not there yet, and is not in the storage's last index either; nothing
// would repeat it, or give it up, in a group that sleeps. A follower that is away, as the host
// knows, is not waited for; the host wakes the group when it is back.
func (g *Group) maybeLeadToSleep(after int, away func(keys.ReplicaID) bool) bool {
	if !g.isLeader || after == 0 {
		return false
	}
	g.sleep.idle++
	if g.sleep.idle < after {
		return false
	}
	status := g.node.BasicStatus()
	last, err := g.config.Storage.LastIndex()
	if err != nil || g.stored.appended > last || g.reads.open > 0 ||
		status.HardState.GetCommit() != last || status.Applied != last ||
		status.LeadTransferee != 0 || g.node.HasReady() {
		return false
	}
	ready := true
	var here, without []keys.ReplicaID
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p trackerProgress) {
		switch replica := keys.ReplicaID(id); {
		case replica == g.config.Self:
		// First, for what Raft calls recent may be two election timeouts old, or older than the last
		// sleep.
		case away != nil && away(replica):
			without = append(without, replica)
		case p.RecentActive && p.Match == last && p.State == stateReplicate:
			here = append(here, replica)
		default:
			ready = false
		}
	})
	// Without a quorum the leader has to find out that it is none any more.
	if !ready || !g.Configuration().Quorum(func(id keys.ReplicaID) bool {
		return id == g.config.Self || slices.Contains(here, id)
	}) || g.config.MaySleep != nil && !g.config.MaySleep() {
		return false
	}
	for _, id := range here {
		g.sleep.quiesce = append(g.sleep.quiesce, &peerpb.RaftMessage{
			Group: uint64(g.config.ID), Type: uint32(raftpb.MsgHeartbeat), To: uint64(id),
			From: uint64(g.config.Self),
			Term: g.term, Commit: last, Sleep: true,
		})
	}
	g.sleep.asleep, g.sleep.without = true, without
	return true
}

// SleepsWithout says whether the group fell asleep while a follower was away, which may lack
// entries now.
func (s *sleep) SleepsWithout(id keys.ReplicaID) bool {
	return s.asleep && slices.Contains(s.without, id)
}

// maybeFollowToSleep sleeps with the leader, if this follower has all that the leader has;
// otherwise it asks the leader to stay awake.
func (g *Group) maybeFollowToSleep(m *peerpb.RaftMessage) {
	status := g.node.BasicStatus()
	last, err := g.config.Storage.LastIndex()
	if err == nil && status.HardState.GetTerm() == m.GetTerm() && status.Lead == m.GetFrom() &&
		last == m.GetCommit() && status.HardState.GetCommit() == last {
		g.sleep.asleep = true
		return
	}
	if status.HardState.GetTerm() <= m.GetTerm() {
		g.sleep.quiesce = append(g.sleep.quiesce, &peerpb.RaftMessage{
			Group: uint64(
				g.config.ID,
			), To: m.GetFrom(), From: uint64(g.config.Self), Term: g.term, Wake: true})
	}
}

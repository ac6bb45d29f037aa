package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

type sleeper struct {
	asleep bool
	// idle counts ticks without a proposal or read, on a leader.
	idle int
	// farewell are messages that the sleeping or waking replica still has to send.
	farewell []*peerpb.RaftMessage
}

// Asleep says whether the group sleeps: it is not ticked, and sends nothing by itself.
func (g *Group) Asleep() bool { return g.sleep.asleep }

// FallAsleep puts a freshly opened group to sleep; nothing happens in it until something wakes it.
func (g *Group) FallAsleep() { g.sleep.asleep = true }

// Wake wakes a sleeping group for something to do. A leader lets its followers know at once, which renews its lease;
// a replica that knows no leader campaigns.
func (g *Group) Wake() {
	g.sleep.idle = 0
	g.wakeUp(true)
}

// WakeLeaderGone wakes the group because its leader's host is gone: the time that passed while it slept counts as time
// without a leader.
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
	g.sleep.asleep, g.sleep.idle = false, 0
	if !active {
		return
	}
	switch {
	case g.isLeader:
		// A read index whose answer nobody waits for: it sends a heartbeat to everybody at once.
		g.node.ReadIndex(wakeRequest)
	case g.leader == 0 && !g.withholdVotes:
		if err := g.node.Campaign(); err != nil {
			g.config.Logger.Debug("campaign refused", "group", g.config.ID, "error", err)
		}
	}
}

// wakeRequest is the read request that wakeUp makes; longer than any real one, so that they cannot be confused.
var wakeRequest = []byte("wake-up")

// maybeLeadToSleep puts an idle group to sleep: all followers are there and have, committed and applied, all there is.
func (g *Group) maybeLeadToSleep() bool {
	if !g.isLeader || g.config.SleepAfterTicks == 0 {
		return false
	}
	g.sleep.idle++
	if g.sleep.idle < g.config.SleepAfterTicks {
		return false
	}
	status := g.node.BasicStatus()
	last, err := g.config.Storage.LastIndex()
	if err != nil || status.HardState.GetCommit() != last || status.Applied != last || status.LeadTransferee != 0 {
		return false
	}
	// Something appended and not yet stable would be beyond last; then the commit index of some follower is behind it too.
	ready := !g.node.HasReady()
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p trackerProgress) {
		if keys.ReplicaID(id) != g.config.Self && (!p.RecentActive || p.Match != last || p.State != stateReplicate) {
			ready = false
		}
	})
	if !ready {
		return false
	}
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, _ trackerProgress) {
		if keys.ReplicaID(id) != g.config.Self {
			g.sleep.farewell = append(g.sleep.farewell, &peerpb.RaftMessage{
				Group: uint64(g.config.ID), Type: uint32(raftpb.MsgHeartbeat), To: id, From: uint64(g.config.Self),
				Term: g.term, Commit: last, Sleep: true,
			})
		}
	})
	g.sleep.asleep = true
	return true
}

// maybeFollowToSleep sleeps with the leader, if this follower has all that the leader has; otherwise it asks the
// leader to stay awake.
func (g *Group) maybeFollowToSleep(m *peerpb.RaftMessage) {
	status := g.node.BasicStatus()
	last, err := g.config.Storage.LastIndex()
	if err == nil && status.HardState.GetTerm() == m.GetTerm() && status.Lead == m.GetFrom() &&
		last == m.GetCommit() && status.HardState.GetCommit() == last {
		g.sleep.asleep = true
		return
	}
	if status.HardState.GetTerm() <= m.GetTerm() {
		g.sleep.farewell = append(g.sleep.farewell, &peerpb.RaftMessage{
			Group: uint64(g.config.ID), To: m.GetFrom(), From: uint64(g.config.Self), Term: g.term, Wake: true})
	}
}

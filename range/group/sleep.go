package group

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Asleep reports whether the group sleeps: it is not ticked, and sends nothing by itself.
func (s *sleep) Asleep() bool { return s.asleep }

// FallAsleep puts a freshly opened group to sleep until something wakes it.
func (s *sleep) FallAsleep() { s.asleep = true }

// Wake wakes a sleeping group because there is work. A leader sends a heartbeat at once, which
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
		return // a promise of the former process may still stand
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
		// A read index for which no caller waits makes Raft send a heartbeat to all followers at
		// once.
		g.node.ReadIndex(wakeRequest)
	case g.leader == 0 && !g.withholdVotes:
		if err := g.node.Campaign(); err != nil {
			g.config.Logger.Debug("campaign refused", "group", g.config.ID, "error", err)
		}
	}
}

// wakeRequest is the read request of wakeUp. It is shorter than any other, so the two cannot be
// confused.
var wakeRequest = []byte("wake-up")

// maybeLeadToSleep puts a group to sleep that has been idle for a number of ticks. All followers
// must be reachable and have stored, committed and applied everything, and no caller may wait for
// an answer. An entry that is on its way to a disk does not count as stored, and is not in the
// storage's last index either; in a sleeping group nothing would repeat it or give it up. The
// leader does not wait for a follower that the host knows to be away; the host wakes the group when
// that follower is back.
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
		// This case comes first, because Raft's "recent" may be two election timeouts old, or older
		// than the last sleep.
		case away != nil && away(replica):
			without = append(without, replica)
		case p.RecentActive && p.Match == last && p.State == stateReplicate:
			here = append(here, replica)
		default:
			ready = false
		}
	})
	// Without a quorum the leader must stay awake to find out that it does not lead any more.
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

// SleepsWithout reports whether the group fell asleep while this follower was away, so that the
// follower may lack entries.
func (s *sleep) SleepsWithout(id keys.ReplicaID) bool {
	return s.asleep && slices.Contains(s.without, id)
}

// maybeFollowToSleep puts this follower to sleep with its leader if it has everything that the
// leader has. Otherwise it asks the leader to stay awake.
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

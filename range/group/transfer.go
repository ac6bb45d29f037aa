package group

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Handing over ends a leadership for good, even if the transfer fails. The message that makes the
// other replica campaign may be late, so the lease cannot be resumed in this term. And Raft refused
// proposals meanwhile, so the state machine, which evaluates each command on top of those before
// it, cannot simply go on either. So a leader whose transfer failed (the other replica was down)
// tries the next follower, until another replica leads.

// TransferLeader gives up the lease and the leadership of a term, if it is the present one, and
// asks another replica to take over. The caller has made sure that no later leader writes below the
// timestamps read here; a caller that has not uses Resign.
func (g *Group) TransferLeader(term uint64, to keys.ReplicaID) {
	if !g.isLeader || g.term != term || to == g.config.Self {
		return
	}
	g.wakeUp(false)
	g.abdicate()
	g.successorAfter, g.successor = 0, 0
	if g.electable(to) { // otherwise pushTransfer finds another replica
		g.transfer(to)
	}
}

func (g *Group) transfer(to keys.ReplicaID) {
	g.handed = true
	g.node.TransferLeader(uint64(to))
}

// Resign gives up the lease and the leadership of a term, if it is the present one. It asks another
// replica to take over only when the lease would have ended, because some reads rely on the lease.
// If that replica does not take over, it asks the others.
func (g *Group) Resign(term uint64, to keys.ReplicaID) {
	if g.isLeader && g.term == term && to != g.config.Self {
		g.wakeUp(false)
		g.abdicate()
		if g.electable(to) {
			g.successor = to
		}
	}
}

func (g *Group) abdicate() {
	g.successorAfter = g.lease.expiry()
	g.leasePromise.keep(g.successorAfter)
	g.lease.forfeit()
	g.abdicated, g.isLeader, g.leader, g.tell = true, false, 0, true
}

// pushTransfer is called at each tick while the group has abdicated and no other replica leads.
func (g *Group) pushTransfer() {
	if g.now < g.successorAfter {
		return
	}
	if status := g.node.BasicStatus(); status.RaftState != raft.StateLeader ||
		status.LeadTransferee != 0 {
		return
	}
	if to := g.successor; to != 0 {
		g.successor = 0
		g.transfer(to)
		return
	}
	if !g.replaceable() {
		if !g.tell { // otherwise the state machine has not been told yet that it does not lead
			g.resume()
		}
		return
	}
	var best, match uint64
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p trackerProgress) {
		if keys.ReplicaID(id) != g.config.Self && p.RecentActive && p.Match >= match &&
			g.electable(keys.ReplicaID(id)) {
			best, match = id, p.Match
		}
	})
	if best != 0 {
		g.transfer(keys.ReplicaID(best))
	}
}

// replaceable reports whether another replica can lead.
func (g *Group) replaceable() bool {
	c := g.Configuration()
	return slices.ContainsFunc(c.Members, func(m Member) bool {
		return m.Replica != g.config.Self && m.Role.votesNew()
	})
}

// resume takes up a leadership again that no other replica can take over. The lease stays forfeited
// if another replica was asked to take over in this term.
func (g *Group) resume() {
	g.abdicated, g.isLeader, g.leader, g.tell = false, true, g.config.Self, true
	if !g.handed {
		g.lease.forfeited = false
	}
}

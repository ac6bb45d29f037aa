package group

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Handing over ends a leadership for good, whatever becomes of the transfer: the message that makes
// the other replica campaign may be late, so the lease cannot be taken up again in this term; and
// Raft refused proposals meanwhile, so the state machine, which evaluates each command on top of
// those before it, cannot simply go on either. A leader whose transfer came to nothing (the other
// was down) therefore tries the next follower, until another one leads.

// TransferLeader gives up the lease and the leadership of a term, if it is the present one, and
// asks another replica to take over. The caller has seen to it that no later leader writes below
// what was read here; Resign is for one that has not.
func (g *Group) TransferLeader(term uint64, to keys.ReplicaID) {
	if !g.isLeader || g.term != term || to == g.config.Self {
		return
	}
	g.wakeUp(false)
	g.abdicate()
	g.successorAfter, g.successor = 0, 0
	if g.electable(to) { // otherwise another one is found, for the state machine has closed its books
		g.transfer(to)
	}
}

func (g *Group) transfer(to keys.ReplicaID) {
	g.handed = true
	g.node.TransferLeader(uint64(to))
}

// Resign gives up the lease and the leadership of a term, if it is the present one. Another replica
// is asked to take over when the lease would have ended: there are reads that count on it. If
// nothing comes of that, others are.
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

// pushTransfer is called each tick while the group has abdicated and no other replica leads.
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
		if !g.tell { // otherwise the state machine has not heard yet that it does not lead
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

// replaceable says whether there is another replica that can lead.
func (g *Group) replaceable() bool {
	c := g.Configuration()
	return slices.ContainsFunc(c.Members, func(m Member) bool {
		return m.Replica != g.config.Self && m.Role.votesNew()
	})
}

// resume takes up a leadership again that no other replica can take over. The lease stays forfeited
// if one was asked to in this term, when it could.
func (g *Group) resume() {
	g.abdicated, g.isLeader, g.leader, g.tell = false, true, g.config.Self, true
	if !g.handed {
		g.lease.forfeited = false
	}
}

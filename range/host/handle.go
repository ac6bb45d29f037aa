package host

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Propose queues data to be appended to the log, in the order of the calls. If this replica does
// not lead at term when the proposal is stepped, the proposal is dropped, and LeadershipChanged
// tells the state machine. The group owns the data from here on. The calling goroutine may step
// this group and others, and run their callbacks, so it must hold no lock that a callback takes.
func (g *Group) Propose(term uint64, data []byte) error {
	queue, ok := g.inbox.propose(proposal{term: term, data: data}, false)
	if !ok {
		return ErrStopped
	}
	if queue {
		g.shard.leave(g)
		g.host.step(g.shard)
	}
	return nil
}

// ProposeInPass is Propose without stepping the group: a caller that proposes to several groups
// calls Host.Step once afterwards, which steps all of them together. If another proposal or a
// message has the group stepped before, that step includes this proposal.
func (g *Group) ProposeInPass(term uint64, data []byte) error {
	if _, ok := g.inbox.propose(proposal{term: term, data: data}, true); !ok {
		return ErrStopped
	}
	return nil
}

// ProposeChange is Propose for an entry that changes the configuration to next when the state
// machine applies the data. The caller checks before that next is one step away and keeps this
// replica (group.Configuration.CanBecome); a change that does not ends the leadership.
func (g *Group) ProposeChange(term uint64, data []byte, next group.Configuration) error {
	if !g.put(func(in *inbox) {
		in.proposals = append(in.proposals, proposal{term, data, &next})
	}) {
		return ErrStopped
	}
	return nil
}

// ReadIndex calls done(nil) once the local state has applied everything that was committed anywhere
// when ReadIndex was called, or with an error if that cannot be shown. done runs on an apply worker
// (or, with an error, on any goroutine, the caller's included) and must not block for long.
func (g *Group) ReadIndex(done func(error)) {
	full := false
	ok := g.put(func(in *inbox) {
		if full = len(in.reads) >= maxInboxReads; !full {
			in.reads = append(in.reads, done)
		}
	})
	if !ok {
		done(ErrStopped)
	} else if full {
		done(ErrOverloaded)
	}
}

// Wake wakes a sleeping group because there is something to do. A replica that knows no leader
// campaigns.
func (g *Group) Wake() { g.do(func(g *Group) { g.core.Wake() }) }

// Campaign makes this replica campaign.
func (g *Group) Campaign() { g.do(func(g *Group) { g.core.Campaign() }) }

// CampaignAgain is Campaign for a replica that tries repeatedly: it does not restart an election
// whose votes are still being counted.
func (g *Group) CampaignAgain() { g.do(func(g *Group) { g.core.CampaignAgain() }) }

// TransferLeader gives up the lease and the leadership of a term, if that is the present term, and
// asks another replica to lead. Proposals made before are in the log before the transfer; later
// ones are refused until it is decided which replica leads.
func (g *Group) TransferLeader(term uint64, to keys.ReplicaID) {
	g.do(func(g *Group) { g.core.TransferLeader(term, to) })
}

// Resign gives up the lease and the leadership of a term, if that is the present term, and asks
// another replica to lead when the lease would have ended.
func (g *Group) Resign(term uint64, to keys.ReplicaID) {
	g.do(func(g *Group) { g.core.Resign(term, to) })
}

// Followers reports the followers' progress, asynchronously; nil if this replica does not lead.
func (g *Group) Followers(report func(map[keys.ReplicaID]group.Progress)) {
	ok := g.do(func(g *Group) {
		if !g.core.Leadership().IsLeader {
			report(nil)
			return
		}
		found := make(map[keys.ReplicaID]group.Progress)
		g.core.Followers(func(id keys.ReplicaID, p group.Progress) { found[id] = p })
		report(found)
	})
	if !ok {
		report(nil)
	}
}

// stopAndWait stops the group and waits for its work in flight. If the group fails at the same
// time, the operation that it queues may be dropped.
func (g *Group) stopAndWait() {
	g.do((*Group).shutDown)
	<-g.stopped
	g.applier.queue.Hurry()
	g.work.Wait()
}

package host

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Propose queues data to be appended to the log, in the order of the calls, if this replica still
// leads at term by then; otherwise it is dropped, and LeadershipChanged tells of it. The data
// belongs to the group from here on. The caller may find itself stepping the group and others, with
// their callbacks, and must hold no lock that those want.
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

// ProposeInPass is Propose for a caller that proposes to other groups as well, and has all of them
// stepped together when it has: it calls Host.Step for this group soon. Whatever else has the group
// stepped meanwhile, another proposal or a message, takes along what is there.
func (g *Group) ProposeInPass(term uint64, data []byte) error {
	if _, ok := g.inbox.propose(proposal{term: term, data: data}, true); !ok {
		return ErrStopped
	}
	return nil
}

// ProposeChange is Propose for an entry that changes the configuration: it is next when the state
// machine has applied the data. One that is not a step away, or would leave this replica out, ends
// the leadership; the caller has seen to it before (group.Configuration.CanBecome).
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

// Wake wakes a sleeping group because there is something to do. A replica without a leader
// campaigns.
func (g *Group) Wake() { g.do(func(g *Group) { g.core.Wake() }) }

// Campaign makes this replica try to lead.
func (g *Group) Campaign() { g.do(func(g *Group) { g.core.Campaign() }) }

// CampaignAgain is Campaign for a replica that tries again and again: an election in which votes
// are counted goes on.
func (g *Group) CampaignAgain() { g.do(func(g *Group) { g.core.CampaignAgain() }) }

// TransferLeader gives up the lease and the leadership of a term, if that is the present one, and
// asks another replica to lead. What was proposed before is in the log before; what comes later is
// refused until it is decided which replica leads.
func (g *Group) TransferLeader(term uint64, to keys.ReplicaID) {
	g.do(func(g *Group) { g.core.TransferLeader(term, to) })
}

// Resign gives up the lease and the leadership of a term, if that is the present one, and asks
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

// stopAndWait lets nothing more in and waits for what is in flight. Its op may be dropped by a
// failure that stops the group before it.
func (g *Group) stopAndWait() {
	g.do((*Group).shutDown)
	<-g.stopped
	g.applier.queue.Hurry()
	g.work.Wait()
}

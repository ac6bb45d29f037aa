package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// averseTicks is for how many election timeouts without a leader a leader-averse replica leaves the
// lead to others: they elect one in two, unless this replica's log has what theirs lack. If it is
// asked for its vote by one that lacks something, it waits for neededTicks, in which any other that
// lacks nothing has had its chance.
const (
	averseTicks = 5
	neededTicks = 1
)

type aversion struct {
	on bool
	// alone counts ticks without a leader.
	alone int
	// needed is above 0 if a replica wanted to lead whose log lacks what this one's has: for how
	// many more ticks that counts.
	needed int
}

// asked is told of requests for votes that no promise stands against.
func (r *aversion) asked(m *raftpb.Message, storage raft.Storage, electionTicks int) {
	if !r.on || m.GetType() != raftpb.MsgPreVote {
		return
	}
	// What the disk does not have yet is left out: then it takes longer.
	last, err := storage.LastIndex()
	if err != nil {
		return
	}
	term, err := storage.Term(last)
	if err == nil && (term > m.GetLogTerm() || term == m.GetLogTerm() && last > m.GetIndex()) {
		r.needed = averseTicks * electionTicks
	}
}

// tick follows for how long the group has had no leader.
func (r *aversion) tick(leader keys.ReplicaID) {
	r.needed = max(0, r.needed-1)
	if leader != 0 {
		r.alone = 0
	} else if r.alone < 1<<30 {
		r.alone++
	}
}

// holdsBack says whether a message begins a campaign that is left to others. It is dropped then,
// which PreVote makes harmless: this replica has no higher term than the others, and follows
// whichever replica leads.
func (r *aversion) holdsBack(m *raftpb.Message, electionTicks int) bool {
	return m.GetType() == raftpb.MsgPreVote && r.waits(electionTicks)
}

// waits says whether this replica leaves campaigns to others at present.
func (r *aversion) waits(electionTicks int) bool {
	timeouts := averseTicks
	if r.needed > 0 {
		timeouts = neededTicks
	}
	return r.on && r.alone < timeouts*electionTicks
}

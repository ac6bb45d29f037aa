package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// averseTicks is how many election timeouts without a leader a leader-averse replica leaves
// campaigns to others. The others elect a leader within two, unless they lack entries that this
// replica has. If a replica that lacks entries asks for a vote, this replica waits only for
// neededTicks, in which any other complete replica had its chance.
const (
	averseTicks = 5
	neededTicks = 1
)

type aversion struct {
	on bool
	// alone counts the ticks without a leader.
	alone int
	// needed is above 0 for some ticks after a replica whose log lacks entries of this one asked
	// for a vote. It counts down.
	needed int
}

// asked notes a request for a vote that no promise forbids.
func (r *aversion) asked(m *raftpb.Message, storage raft.Storage, electionTicks int) {
	if !r.on || m.GetType() != raftpb.MsgPreVote {
		return
	}
	// Entries that are not on disk yet do not count; then it takes longer.
	last, err := storage.LastIndex()
	if err != nil {
		return
	}
	term, err := storage.Term(last)
	if err == nil && (term > m.GetLogTerm() || term == m.GetLogTerm() && last > m.GetIndex()) {
		r.needed = averseTicks * electionTicks
	}
}

// tick counts how long the group has had no leader.
func (r *aversion) tick(leader keys.ReplicaID) {
	r.needed = max(0, r.needed-1)
	if leader != 0 {
		r.alone = 0
	} else if r.alone < 1<<30 {
		r.alone++
	}
}

// holdsBack reports whether a message begins a campaign that is left to others. The caller drops
// it. With PreVote that is harmless: this replica has no higher term than the others, and follows
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

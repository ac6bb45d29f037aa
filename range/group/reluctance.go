package group

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// reluctantTicks is for how many election timeouts without a leader a reluctant replica leaves the lead to others: they elect one in two,
// unless this replica's log has what theirs lack.
const reluctantTicks = 5

// SetReluctant keeps this replica from campaigning as long as another one may do so: it would lead badly (its disk stands still, or is
// full). It votes, it takes over what is handed to it, and in a group that has known no leader for reluctantTicks election timeouts it
// campaigns after all. Nor does it hand over by itself what it leads: that is its owner's business.
func (g *Group) SetReluctant(reluctant bool) { g.reluctance.on = reluctant }

type reluctance struct {
	on bool
	// alone counts ticks without a leader.
	alone int
}

// tick follows for how long nobody has led.
func (r *reluctance) tick(leader keys.ReplicaID) {
	if leader != 0 {
		r.alone = 0
	} else if r.alone < 1<<30 {
		r.alone++
	}
}

// holdsBack says whether a message begins a campaign that is left to others. It is dropped then, which PreVote makes harmless: this
// replica has no higher term than the others, and follows whoever leads.
func (r *reluctance) holdsBack(m *raftpb.Message, electionTicks int) bool {
	return r.on && m.GetType() == raftpb.MsgPreVote && r.alone < reluctantTicks*electionTicks
}

package group

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A follower waits for a silent leader, which may only be slow: for an election timeout, and for a
// random time more, so that two followers do not campaign at once. If the host sees that the
// leader's process is gone, it need wait for neither. It must wait for the end of its promise
// (leasePromise): until then the leader's lease may be valid, for all that the follower knows.
//
// The host may be wrong, and safety does not depend on it. A live leader sends heartbeats: each
// extends the promise of the follower that answers it, and ends the belief. If a follower campaigns
// nevertheless, it asks for pre-votes, which a follower that hears the leader refuses.

// succession is a follower's state about a leader whose process is gone.
type succession struct {
	// believed is set if the host says that the process of the present term's leader is gone. A
	// message of that leader clears it, and so does another leader, or another term.
	believed bool
	// due is set if this replica is to campaign: its promise to the gone leader has run out, and
	// the leader is forgotten; or the replica has restarted, has withheld its votes for long
	// enough, and found no leader.
	due bool
	// tries counts the campaigns, up to successionTries. After that Raft's timer decides.
	tries int
}

// successionTries bounds the campaigns for a leader whose process is gone. More than one may be
// needed, because the other followers may hear of the end some ticks later.
const successionTries = 3

// observed is called when the leader or the term has changed.
func (s *succession) observed(leader keys.ReplicaID, newTerm bool) {
	if leader != 0 || newTerm {
		*s = succession{}
	}
}

// keeps reports whether a request for a vote that a promise forbids is kept until the promise has
// run out. It is if the leader's process is gone, since that is soon. Of each replica only the
// latest request is kept.
func (s *succession) keeps(kept []*raftpb.Message, m *raftpb.Message) bool {
	if !s.believed {
		return false
	}
	for i, old := range kept {
		if old.GetFrom() == m.GetFrom() {
			kept[i] = m
			return false
		}
	}
	return true
}

package group

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A follower waits for a leader that is silent, because it may only be slow: for an election
// timeout, and for a random time more, so that two followers do not begin at once. Where the host
// sees that the process of the leader is gone, neither is needed. What is needed is the end of the
// promise (leasePromise): until then the leader's lease may stand, for all that the follower knows.
//
// The host may be wrong, and nothing depends on it. A leader that lives sends heartbeats: each
// extends the promise of the follower that answers it, and ends the belief. A follower that
// campaigns all the same asks for pre-votes, which a follower that hears the leader does not give.

// succession is what a follower does about a leader whose process is gone.
type succession struct {
	// believed: the process that led in the present term is gone, as the host says. A message of
	// that leader ends it, and so does another leader, or another term.
	believed bool
	// due: this replica is to campaign. The leader is forgotten since the promise to it has run out;
	// or the replica has restarted, has withheld its votes for long enough, and found no leader.
	due bool
	// tries counts the campaigns. They are few: what they do not achieve is left to Raft's timer.
	tries int
}

// successionTries bounds the campaigns for a leader whose process is gone. The other followers may
// hear of its end some ticks later.
const successionTries = 3

// observed is told when the leader or the term is another one than before.
func (s *succession) observed(leader keys.ReplicaID, newTerm bool) {
	if leader != 0 || newTerm {
		*s = succession{}
	}
}

// keeps says whether a request for a vote that a promise forbids is looked at again when the
// promise has run out: soon, if the process of the leader is gone. No replica has more than one of
// its requests kept, the latest one.
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

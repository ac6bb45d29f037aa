package etcdmembers

import (
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Changes of the members that etcd's clients ask for pass the checks that etcd has by default
// (--strict-reconfig-check), by what the leader knows of who answers. All members count as started:
// a server that is added runs already. `tidemark core` is laxer where that is safe: a server is
// added, or takes the place of a member, as long as the voters that answer stay a majority.

// mayAdd is etcd's check before a member is added, with a vote or without one: the members that
// answer would be a majority of the voters if there were one voter more, which does not answer. A
// single member may always get a second one.
func mayAdd(now *clusterpb.ListCoreResponse) error {
	voters, answering := votersOf(now)
	if voters > 1 && answering < (voters+1)/2+1 {
		return rpctypes.ErrGRPCUnhealthy
	}
	return nil
}

// mayRemove is etcd's check before a member is removed: the other voters that answer have to be a
// majority of the other voters. A member without a vote, or one that does not answer, may always be
// removed, but for the only voter.
func mayRemove(now *clusterpb.ListCoreResponse, m *clusterpb.CoreMember) error {
	if m.Role == clusterpb.ReplicaRole_LEARNER {
		return nil
	}
	switch voters, answering := votersOf(now); {
	case voters == 1:
		return rpctypes.ErrGRPCMemberNotEnoughStarted
	case answers(now, m) && answering-1 < (voters-1)/2+1:
		return rpctypes.ErrGRPCUnhealthy
	}
	return nil
}

// votersOf counts the voters, and those of them that answer the leader.
func votersOf(now *clusterpb.ListCoreResponse) (all, answering int) {
	for _, m := range now.GetMembers().GetMembers() {
		if m.Role == clusterpb.ReplicaRole_LEARNER {
			continue
		}
		all++
		if answers(now, m) {
			answering++
		}
	}
	return all, answering
}

func answers(now *clusterpb.ListCoreResponse, m *clusterpb.CoreMember) bool {
	for _, state := range now.States {
		if state.Replica == m.Replica {
			return state.Answers
		}
	}
	return false
}

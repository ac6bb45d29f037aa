package etcdmembers

import (
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Changes of the members by clients of etcd must pass the checks that etcd makes by default
// (--strict-reconfig-check). The checks use the leader's knowledge of which members answer. All
// members count as started, because a server that is added is running already. `tidemark core` is
// less strict where that is safe: a server may be added, or replace a member, as long as the voters
// that answer remain a majority.

// mayAdd is etcd's check before a member is added, with a vote or without one. The members that
// answer must be a majority even if there were one more voter that does not answer. A single member
// may always get a second one.
func mayAdd(now *clusterpb.ListCoreResponse) error {
	voters, answering := votersOf(now)
	if voters > 1 && answering < (voters+1)/2+1 {
		return rpctypes.ErrGRPCUnhealthy
	}
	return nil
}

// mayRemove is etcd's check before a member is removed. The other voters that answer must be a
// majority of the other voters. A member without a vote, or a member that does not answer, may
// always be removed, except for the only voter.
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

// votersOf counts the voters, and the voters that answer the leader.
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

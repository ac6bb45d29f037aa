package etcdmembers

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestMayChangeMembers: etcd's checks for any number of voters, by how many of them answer.
func TestMayChangeMembers(t *testing.T) {
	for _, c := range []struct {
		voters, answering int
		add, removeLive   error
	}{
		{1, 1, nil, rpctypes.ErrGRPCMemberNotEnoughStarted},
		{2, 2, nil, nil},
		{2, 1, rpctypes.ErrGRPCUnhealthy, rpctypes.ErrGRPCUnhealthy},
		{3, 3, nil, nil},
		{3, 2, rpctypes.ErrGRPCUnhealthy, rpctypes.ErrGRPCUnhealthy},
		{4, 3, nil, nil},
		{5, 4, nil, nil},
		{5, 3, rpctypes.ErrGRPCUnhealthy, rpctypes.ErrGRPCUnhealthy},
	} {
		now := &clusterpb.ListCoreResponse{Members: &clusterpb.CoreMembers{}}
		add := func(role clusterpb.ReplicaRole, answers bool) *clusterpb.CoreMember {
			m := &clusterpb.CoreMember{Replica: uint64(len(now.States) + 1), Role: role}
			now.Members.Members = append(now.Members.Members, m)
			now.States = append(now.States, &clusterpb.CoreMemberState{Replica: m.Replica,
				Answers: answers})
			return m
		}
		learner := add(clusterpb.ReplicaRole_LEARNER, true)
		for i := range c.voters {
			add(clusterpb.ReplicaRole_VOTER, i < c.answering)
		}
		voters := now.Members.Members[1:]
		if err := mayAdd(now); !errors.Is(err, c.add) {
			t.Errorf("%d of %d answer, and one is added: %v", c.answering, c.voters, err)
		}
		if err := mayRemove(now, voters[0]); !errors.Is(err, c.removeLive) {
			t.Errorf("%d of %d answer, and one of those is removed: %v", c.answering, c.voters, err)
		}
		if down := voters[c.voters-1]; c.answering < c.voters {
			if err := mayRemove(now, down); err != nil {
				t.Errorf("%d of %d answer, and another is removed: %v", c.answering, c.voters, err)
			}
		}
		if err := mayRemove(now, learner); err != nil {
			t.Errorf("%d of %d answer, and a learner is removed: %v", c.answering, c.voters, err)
		}
	}
}

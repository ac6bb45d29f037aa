package lifecycle

import (
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Of the replicas that are created with nothing, only a voter of a partition that has split off
// votes before it has a snapshot.
func TestIsFounder(t *testing.T) {
	type roles = []clusterpb.ReplicaRole
	const voter, learner = clusterpb.ReplicaRole_VOTER, clusterpb.ReplicaRole_LEARNER
	for name, test := range map[string]struct {
		self   keys.ReplicaID
		voters []keys.ReplicaID
		from   uint64
		roles  roles
		want   bool
	}{
		"a voter of a child":             {2, nil, 100, roles{voter, voter, voter}, true},
		"of a keyspace that was founded": {2, nil, 0, roles{voter, voter, voter}, false},
		"it knows its voters":            {2, []keys.ReplicaID{1, 2}, 100, roles{voter, voter}, false},
		"a learner":                      {4, nil, 100, roles{voter, voter, voter, learner}, false},
		"beside a learner":               {2, nil, 100, roles{voter, voter, voter, learner}, false},
		"another replica's":              {9, nil, 100, roles{voter, voter, voter}, false},
	} {
		p := &clusterpb.Partition{Id: 101, SplitFrom: test.from}
		for i, role := range test.roles {
			p.Replicas = append(p.Replicas, &clusterpb.Replica{Node: uint64(i + 1),
				Replica: uint64(i + 1), Role: role})
		}
		id := raftlog.Identity{Group: 101, Replica: test.self, Voters: test.voters}
		if got := isFounder(id, p); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

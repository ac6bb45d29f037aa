package group

import (
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

var roles = map[clusterpb.ReplicaRole]Role{
	clusterpb.ReplicaRole_VOTER:    Voter,
	clusterpb.ReplicaRole_LEARNER:  Learner,
	clusterpb.ReplicaRole_INCOMING: Incoming,
	clusterpb.ReplicaRole_OUTGOING: Outgoing,
	clusterpb.ReplicaRole_DEMOTED:  Demoted,
}

// ConfigurationOf returns the configuration of a descriptor; empty for the descriptor of a replica
// that a snapshot is to fill.
func ConfigurationOf(d *clusterpb.Partition) Configuration {
	c := Configuration{Changed: d.GetMembership() > FoundingMembership ||
		d.GetGeneration() > FoundingGeneration}
	for _, r := range d.GetReplicas() {
		c.Members = append(c.Members, Member{Replica: keys.ReplicaID(r.Replica), Host: r.Node,
			Role: roles[r.Role]})
	}
	slices.SortFunc(c.Members, func(a, b Member) int {
		if a.Replica < b.Replica {
			return -1
		}
		return 1
	})
	return c
}

// FoundingMembership is the membership version with which partitions are founded. Their replicas
// are voters from the beginning; those that come later are learners first.
const FoundingMembership = 1

// FoundingGeneration is the span generation with which partitions are founded. A partition with
// another generation has split, or has split off: its log does not begin with an empty state.
const FoundingGeneration = 1

package replica

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The replicas of a partition are those of its descriptor, which lies in the state beside the
// applied index, changes by entries of the log, and travels with snapshots. Its group's
// configuration is made of it, so the two cannot differ.

var roles = map[clusterpb.ReplicaRole]group.Role{
	clusterpb.ReplicaRole_VOTER:    group.Voter,
	clusterpb.ReplicaRole_LEARNER:  group.Learner,
	clusterpb.ReplicaRole_INCOMING: group.Incoming,
	clusterpb.ReplicaRole_OUTGOING: group.Outgoing,
	clusterpb.ReplicaRole_DEMOTED:  group.Demoted,
}

// ConfigurationOf is the configuration that a descriptor says; empty for the descriptor of a
// replica that is to be filled.
func ConfigurationOf(d *clusterpb.Partition) group.Configuration {
	c := group.Configuration{Changed: d.GetMembership() > FoundingMembership}
	for _, r := range d.GetReplicas() {
		c.Members = append(c.Members, group.Member{Replica: keys.ReplicaID(r.Replica), Host: r.Node,
			Role: roles[r.Role]})
	}
	slices.SortFunc(c.Members, func(a, b group.Member) int {
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

// Configuration implements group.Configured.
func (r *Replica) Configuration() group.Configuration { return ConfigurationOf(r.Descriptor()) }

// Configuration implements group.Configured: it is of the same engine snapshot as the data.
func (s *snapshot) Configuration() group.Configuration { return ConfigurationOf(s.descriptor) }

// Configuration implements group.Configured.
func (s *staged) Configuration() group.Configuration { return ConfigurationOf(s.descriptor) }

// empty is a descriptor as a replica has it that is to be filled: it belongs to the partition, and
// knows of no replicas, itself included. It votes for nobody, and a snapshot replaces it.
func empty(d *clusterpb.Partition) *clusterpb.Partition {
	e := proto.Clone(d).(*clusterpb.Partition)
	e.Replicas, e.Generation, e.Membership = nil, 0, 0
	return e
}

// changeOf is the configuration that a descriptor leads to from another one; nil if it stays what it
// is.
func changeOf(now, next *clusterpb.Partition) (*group.Configuration, error) {
	from, to := ConfigurationOf(now), ConfigurationOf(next)
	if from.Equal(&to) {
		return nil, nil
	}
	if err := from.CanBecome(&to); err != nil {
		return nil, err
	}
	return &to, nil
}

// checkChange sees to it that what was proposed as a change of the configuration is one, and
// nothing else.
func checkChange(now, next *clusterpb.Partition, change bool) error {
	to, err := changeOf(now, next)
	if err != nil {
		return err
	}
	if (to != nil) != change {
		return fmt.Errorf("the entry is marked as a change of replicas: %v, and it is one: %v", change,
			to != nil)
	}
	return nil
}

package server

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// plausible returns an error if a descriptor cannot follow another one, whatever their spans. If
// the partition was recovered, none of its earlier replicas needs to be left: it then has the
// replica with which the recovery continued.
func plausible(next, now *clusterpb.Partition, recovered *clusterpb.RecoveredPartition) error {
	if err := keys.ValidatePartition(next); err != nil {
		return err
	}
	if next.Keyspace != now.Keyspace {
		return fmt.Errorf("its keyspace is %d, and was %d", next.Keyspace, now.Keyspace)
	}
	members := group.ConfigurationOf(next)
	if err := members.Validate(); err != nil {
		return err
	}
	first := steps.NextReplica(now)
	kept := 0
	for _, r := range next.Replicas {
		switch before := steps.ReplicaOf(now, r.Replica); {
		case before != nil && before.Node == r.Node:
			kept++
		case before != nil:
			return fmt.Errorf("replica %d is on node %d, and was on node %d",
				r.Replica, r.Node, before.Node)
		case r.Replica < first:
			return fmt.Errorf("replica %d comes, and was removed before", r.Replica)
		}
	}
	switch {
	case kept == 0 && !steps.Recovered(next, recovered):
		return fmt.Errorf("none of its replicas is left, and no recovery of it was confirmed")
	case len(next.Replicas) > maxReplicas:
		return fmt.Errorf("it has %d replicas, at most %d", len(next.Replicas), maxReplicas)
	case steps.NextReplica(next) < first || steps.NextReplica(next) > first+maxSteps:
		return fmt.Errorf("its next replica has the number %d, and had %d", steps.NextReplica(next),
			first)
	case next.Membership < now.Membership || next.Membership > now.Membership+maxSteps:
		return fmt.Errorf("its membership is %d, and was %d", next.Membership, now.Membership)
	case next.Generation > now.Generation+maxSteps:
		return fmt.Errorf("its generation is %d, and was %d", next.Generation, now.Generation)
	}
	return nil
}

const (
	// maxReplicas limits the replicas of a partition, including replicas that are being added or
	// removed. maxSteps limits the number of changes of a partition that the table may have missed.
	maxReplicas = 16
	maxSteps    = 1 << 20
)

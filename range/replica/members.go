package replica

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The replicas of a partition are those of its descriptor, which lies in the state beside the
// applied index, changes by entries of the log, and travels with snapshots. Its group's
// configuration is made of it, so the two cannot differ.

// Configuration implements group.Configured.
func (r *Replica) Configuration() group.Configuration {
	return group.ConfigurationOf(r.Descriptor())
}

// Settled says whether a majority knows the present descriptor to be committed, on disk: an entry
// behind the one that brought it is applied, and was stored together with that knowledge. Only then
// may a replica that it names out be destroyed: until then others may look for its vote.
func (r *Replica) Settled() bool {
	index, _ := r.Applied()
	return index > r.descriptorAt.Load()
}

// Fence appends an entry that changes nothing, and waits until it is applied here.
func (r *Replica) Fence(ctx context.Context) error {
	return r.command(ctx, proposal.KindWrite,
		func(*evaluation, *proposal.Entry) (bool, error) { return true, nil })
}

// changeOf is the configuration that a descriptor leads to from another one; nil if it stays what
// it is.
func changeOf(now, next *clusterpb.Partition) (*group.Configuration, error) {
	from, to := group.ConfigurationOf(now), group.ConfigurationOf(next)
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

package operators

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// BeginProposed records operators that the planner proposes, if their partitions are unchanged
// since the proposal.
func (s *Operators) BeginProposed(ctx context.Context, proposed []planner.Operator) error {
	if len(proposed) == 0 {
		return nil
	}
	done, err := s.meta.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	// Changes of settings take turns with this call. So no operator begins after a request to pause
	// was answered.
	settings := &clusterpb.PlacementSettings{}
	if _, err := meta.Load(s.store.Stale(), []byte(meta.SettingsKey),
		settings); err != nil || settings.GetPaused() {
		return err
	}
	var errs []error
	for i := range proposed {
		o, conditions, err := s.Proposed(s.store.Stale(), &proposed[i])
		if err == nil && o != nil {
			if err = s.begin(ctx, o, conditions); err == nil {
				s.metrics.begun(proposed[i].Reason.Cause)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("partition %s: %w", proposed[i].Partition, err))
		}
	}
	return errors.Join(errs...)
}

// Proposed makes the operator that the planner proposes, and the conditions under which it can be
// recorded. It returns nil if the proposal is outdated.
func (s *Operators) Proposed(v *store.View, p *planner.Operator) (
	*serverpb.Operator, []*storepb.Compare, error) {
	stored, revision, err := meta.LoadPartition(v, p.Keyspace, p.Partition)
	if err == nil && stored != nil && p.Kind == planner.Split {
		o, conditions, err := s.proposedSplit(v, p.Keyspace, p.Partition, p.Epoch, []byte(p.Key))
		if o != nil {
			giveReasons(o, p)
		}
		return o, conditions, err
	}
	if err == nil && stored != nil && p.Kind == planner.Merge {
		return s.proposedMerge(v, p)
	}
	if err != nil || stored == nil || len(p.Steps) == 0 {
		return nil, nil, err
	}
	d := s.reports.Newest(p.Partition, stored)
	if e := p.Steps[0].Epoch; d.Generation != e.Generation || d.Membership != e.Membership {
		return nil, nil, nil
	}
	o := &serverpb.Operator{Partition: d.Id, Keyspace: d.Keyspace, Kind: p.Kind.String(),
		Bytes: uint64(p.Bytes), CreatedUnixMs: time.Now().UnixMilli()}
	giveReasons(o, p)
	conditions := []*storepb.Compare{store.ModifiedAt(meta.PartitionKey(p.Keyspace, p.Partition),
		revision)}
	if p.Add != 0 {
		unchanged, status, err := meta.UnchangedNode(v, p.Add)
		if err != nil || status != clusterpb.NodeStatus_NODE_ACTIVE {
			return nil, nil, err
		}
		conditions = append(conditions, unchanged)
		o.AddNode, o.AddReplica = uint64(p.Add), steps.NextReplica(d)
		if there := steps.ReplicaAt(d, p.Add); there != nil {
			o.AddReplica = there.Replica // a learner that was left there is reused
		}
	}
	if p.Remove != 0 {
		there := steps.ReplicaAt(d, p.Remove)
		if there == nil {
			return nil, nil, nil
		}
		o.RemoveNode, o.RemoveReplica = uint64(p.Remove), there.Replica
	}
	switch {
	case p.Lead == 0:
	case p.Lead == p.Add:
		o.Lead = true
	default:
		there := steps.ReplicaAt(d, p.Lead)
		if there == nil {
			return nil, nil, nil
		}
		o.LeadNode, o.LeadReplica = uint64(p.Lead), there.Replica
	}
	return o, conditions, nil
}

package operators

import (
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// nextOf returns the next step of an operator. It uses the table, and also later reports if
// reported is set. It also returns the partition whose leader takes the step. The step is nil if
// the partition is gone.
func (s *Operators) nextOf(v *store.View, o *serverpb.Operator, reported bool,
	ranks *leadRanks) (next *steps.Step, of keys.PartitionID, err error) {
	id, right := keys.PartitionID(o.Partition), keys.PartitionID(o.Right)
	known := func(id keys.PartitionID) (*clusterpb.Partition, error) {
		d, _, err := meta.LoadPartition(v, keys.KeyspaceID(o.Keyspace), id)
		if d != nil && reported {
			d = s.reports.Newest(id, d)
		}
		return d, err
	}
	d, err := known(id)
	if err != nil || d == nil {
		return nil, id, err
	}
	leader, _ := s.reports.Progress(id)
	if !steps.Merges(o) {
		step := steps.Next(o, d, leader, ranks.of)
		return &step, id, ranks.err
	}
	at := steps.Sides{Left: d, LeftLeader: leader}
	at.RightLeader, _ = s.reports.Progress(right)
	if at.Right, err = known(right); err != nil {
		return nil, id, err
	}
	step := steps.Merge(o, at, ranks.of)
	if step.Order != nil {
		id = keys.PartitionID(step.Order.Target.Id)
	}
	return &step, id, ranks.err
}

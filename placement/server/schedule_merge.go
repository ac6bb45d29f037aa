package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// unfitMerge returns the reason why a merge must be cancelled, or an empty string. If a node is
// silent, the merge would freeze the right partition again and again, and the two partitions could
// not be repaired meanwhile. The caller holds mu.
func (c *scheduler) unfitMerge(o *serverpb.Operator, a *advance, now time.Time) string {
	var both []*clusterpb.Partition
	for _, id := range []uint64{o.Partition, o.Right} {
		d, _, err := meta.LoadPartition(c.server.config.Store.Stale(), keys.KeyspaceID(o.Keyspace),
			keys.PartitionID(id))
		if err != nil || d == nil {
			return "" // the merge has ended
		}
		both = append(both, c.server.reports.Newest(keys.PartitionID(id), d))
	}
	left, right := both[0], both[1]
	if a.failures >= steps.MergeTries {
		return fmt.Sprintf("it was tried %d times, and refused: %s", a.failures, a.waits)
	}
	if left.Generation == o.Generation && right.Frozen == nil {
		if n := steps.TriesOf(o, left, right); n >= steps.MergeTries {
			return fmt.Sprintf("it was tried %d times, and partition %d did not freeze on all of its "+
				"nodes in time", n, right.Id)
		}
	}
	for _, d := range both {
		for _, r := range d.Replicas {
			n := c.nodes[keys.NodeID(r.Node)]
			if n == nil || n.SilentSinceUnixMs == 0 {
				continue
			}
			if silent := now.Sub(time.UnixMilli(n.SilentSinceUnixMs)); silent >= targetSilent {
				return fmt.Sprintf("node %d, which has a replica of partition %d, has not answered for %s",
					r.Node, d.Id, silent.Round(time.Second))
			}
		}
	}
	return ""
}

// noteMerges tells the State which partitions of an update have subsumed others. It runs before the
// State gets the new descriptors. The caller holds mu.
func (c *scheduler) noteMerges(u *clusterpb.TableUpdate, now time.Time) {
	for _, d := range u.Partitions {
		at, known := c.layout.spans[keys.PartitionID(d.Id)]
		for known && at.end < string(d.End) {
			right, found := c.layout.starts.View().Get(at.end)
			if !found {
				break
			}
			c.state.Merged(now, keys.PartitionID(d.Id), right)
			at = c.layout.spans[right]
		}
	}
}

// frozenFlights returns in-flight entries for frozen partitions without an operator, so that the
// planner does not touch them. The caller holds mu.
func (c *scheduler) frozenFlights() (flights []planner.InFlight) {
	for id := range c.frozen {
		if c.operators.flying[id] == nil {
			flights = append(flights, planner.InFlight{Partition: id})
		}
	}
	return flights
}

// frozenFor is the time for which a partition may be frozen without an operator that merges it.
const frozenFor = 30 * time.Second

// thaw has frozen partitions thaw if no operator merges them any more, as after a recovery of the
// core. A freeze is valid for one epoch of the left neighbour. thaw records an operator of the left
// neighbour that is cancelled from the beginning, which raises that epoch.
func (c *scheduler) thaw(ctx context.Context, now time.Time) error {
	c.mu.Lock()
	held := map[keys.PartitionID]bool{}
	for _, o := range c.operators.flying {
		// Only a merge with its left neighbour thaws a partition. Any other operator of the partition
		// waits for that.
		if steps.Merges(o) {
			held[keys.PartitionID(o.Right)] = true
		}
	}
	due := map[keys.PartitionID]keys.KeyspaceID{}
	for id, f := range c.frozen {
		switch {
		case !c.complete || !c.informed(now):
			continue
		case held[id]:
		case now.Sub(f.adrift) >= frozenFor:
			due[id] = c.keyspaceOf[id]
		default:
			continue
		}
		f.adrift = now
		c.frozen[id] = f
	}
	c.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	done, err := c.server.meta.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	var errs []error
	for id, keyspace := range due {
		errs = append(errs, c.server.operators.Thaw(ctx, keyspace, id))
	}
	return errors.Join(errs...)
}

package server

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// unfitMerge says why a merge is to be cancelled; empty: it is not. A node that is silent would have
// the right one frozen again and again, and what is held is not repaired. The caller holds mu.
func (c *scheduler) unfitMerge(o *serverpb.Operator, now time.Time) string {
	var both []*clusterpb.Partition
	for _, id := range []uint64{o.Partition, o.Right} {
		d, _, err := loadPartition(c.server.store.Stale(), keys.KeyspaceID(o.Keyspace),
			keys.PartitionID(id))
		if err != nil || d == nil {
			return "" // it has ended
		}
		both = append(both, c.server.soft.newest(keys.PartitionID(id), d))
	}
	left, right := both[0], both[1]
	if left.Generation == o.Generation && right.Frozen == nil {
		if n := triesOf(o, left, right); n >= mergeTries {
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

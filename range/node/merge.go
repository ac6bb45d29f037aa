package node

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// mergeScan checks a read of several partitions and hands it to their replicas.
func (n *Node) mergeScan(pending replica.Pending) {
	c := pending.Request.GetMergeScan()
	routes := c.GetPartitions()
	if len(routes) == 0 || len(routes) > replica.MaxMerged {
		n.refuseMerge(pending, "it names %d partitions, 1 to %d are allowed", len(routes), replica.MaxMerged)
		return
	}
	var keyspace uint32
	partitions := make([]replica.Merged, len(routes))
	for i, route := range routes {
		if i > 0 && route.GetPartition() <= routes[i-1].GetPartition() {
			n.refuseMerge(pending, "its partitions must be given by ascending id, each once")
			return
		}
		partitions[i].Route = route
		h, refusal := n.serving(keys.PartitionID(route.GetPartition()))
		if refusal != nil {
			partitions[i].Refusal = refusal
			n.metrics.refused.Inc()
			continue
		}
		partitions[i].Replica = h.replica
		switch mine := h.replica.Descriptor().GetKeyspace(); keyspace {
		case 0:
			keyspace = mine
		case mine:
		default:
			n.refuseMerge(pending, "its partitions are of more than one keyspace")
			return
		}
	}
	n.shared.MergeScan(pending, partitions)
}

func (n *Node) refuseMerge(pending replica.Pending, format string, args ...any) {
	n.refuse(pending.Request, kvpb.ErrorCode_INVALID_ARGUMENT, "a scan of several partitions: "+fmt.Sprintf(format, args...), pending.Reply)
}

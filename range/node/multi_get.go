package node

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// multiGet checks a read of keys of several partitions, and answers it.
func (n *Node) multiGet(pending replica.Pending) {
	c := pending.Request.GetMultiGet()
	all := 0
	for _, p := range c.GetPartitions() {
		all += len(p.GetKeys())
	}
	switch parts := len(c.GetPartitions()); {
	case parts == 0 || parts > replica.MaxMerged:
		n.refuseMultiGet(pending, "it names %d partitions, 1 to %d are allowed", parts, replica.MaxMerged)
	case all > replica.MaxMultiGetKeys:
		n.refuseMultiGet(pending, "it names %d keys, at most %d are allowed", all, replica.MaxMultiGetKeys)
	case rpc.FromTimestamp(c.GetAt()).IsZero():
		n.refuseMultiGet(pending, "it needs a timestamp")
	default:
		n.shared.MultiGet(pending, n)
	}
}

func (n *Node) refuseMultiGet(pending replica.Pending, format string, args ...any) {
	n.refuse(pending.Request, kvpb.ErrorCode_INVALID_ARGUMENT, "a read of keys of several partitions: "+fmt.Sprintf(format, args...), pending.Reply)
}

// Replica implements replica.Finder.
func (n *Node) Replica(partition uint64) (*replica.Replica, *kvpb.Error) {
	h, refusal := n.serving(keys.PartitionID(partition))
	if refusal != nil {
		n.metrics.refused.Inc()
		return nil, refusal
	}
	return h.replica, nil
}

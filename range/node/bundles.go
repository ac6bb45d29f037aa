package node

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// mergeScan checks a read of several partitions and passes it to their replicas.
func (n *Node) mergeScan(pending config.Pending) {
	c := pending.Request.GetMergeScan()
	routes := c.GetPartitions()
	if len(routes) == 0 || len(routes) > read.MaxMerged {
		n.refuseMerge(pending, "it names %d partitions, 1 to %d are allowed", len(routes),
			read.MaxMerged)
		return
	}
	var keyspace uint32
	partitions := make([]read.Merged, len(routes))
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
		partitions[i].Reader = h.Replica.Reads()
		switch mine := h.Replica.Descriptor().GetKeyspace(); keyspace {
		case 0:
			keyspace = mine
		case mine:
		default:
			n.refuseMerge(pending, "its partitions are of more than one keyspace")
			return
		}
	}
	if n.sampledBundle() {
		for _, route := range routes {
			n.sampleOf(route.GetPartition(), &kvpb.Request{Command: &kvpb.Request_Scan{
				Scan: &kvpb.ScanRequest{Start: c.Start, End: c.End}}}, pending.Arrived)
		}
	}
	n.shared.Reads.MergeScan(pending, partitions)
}

func (n *Node) refuseMerge(pending config.Pending, format string, args ...any) {
	n.refuse(pending.Request, kvpb.ErrorCode_INVALID_ARGUMENT,
		"a scan of several partitions: "+fmt.Sprintf(format, args...), pending.Reply)
}

// multiGet checks a read of keys of several partitions, and answers it.
func (n *Node) multiGet(pending config.Pending) {
	c := pending.Request.GetMultiGet()
	all := 0
	for _, p := range c.GetPartitions() {
		all += len(p.GetKeys())
	}
	switch parts := len(c.GetPartitions()); {
	case parts == 0 || parts > read.MaxMerged:
		n.refuseMultiGet(pending, "it names %d partitions, 1 to %d are allowed", parts,
			read.MaxMerged)
	case all > read.MaxMultiGetKeys:
		n.refuseMultiGet(pending, "it names %d keys, at most %d are allowed", all,
			read.MaxMultiGetKeys)
	case wire.FromTimestamp(c.GetAt()).IsZero():
		n.refuseMultiGet(pending, "it needs a timestamp")
	default:
		if n.sampledBundle() {
			for _, p := range c.GetPartitions() {
				n.sampleOf(p.GetPartition(), &kvpb.Request{Command: &kvpb.Request_BatchGet{
					BatchGet: &kvpb.BatchGetRequest{Keys: p.GetKeys()}}}, pending.Arrived)
			}
		}
		n.shared.Reads.MultiGet(pending, n)
	}
}

func (n *Node) refuseMultiGet(pending config.Pending, format string, args ...any) {
	n.refuse(pending.Request, kvpb.ErrorCode_INVALID_ARGUMENT, "a read of keys of several "+
		"partitions: "+fmt.Sprintf(format, args...), pending.Reply)
}

// Reader implements replica.Finder.
func (n *Node) Reader(partition uint64) (*read.Reader, *kvpb.Error) {
	h, refusal := n.serving(keys.PartitionID(partition))
	if refusal != nil {
		n.metrics.refused.Inc()
		return nil, refusal
	}
	return h.Replica.Reads(), nil
}

// bundleGap is the number of reads of several partitions for which one sampled read stands.
const bundleGap = 16

// sampledBundle decides whether the next read of several partitions is sampled.
func (n *Node) sampledBundle() bool {
	return n.bundles.Add(1)*0x9e3779b97f4a7c15>>20%bundleGap == 0
}

// sampleOf samples one partition's part of a read of several partitions.
func (n *Node) sampleOf(partition uint64, q *kvpb.Request, now time.Time) {
	if h := n.replicas.Get(keys.PartitionID(partition)); h != nil {
		if s := h.Load.Sampling.Load(); s != nil {
			s.NoteOne(q, bundleGap, now)
		}
	}
}

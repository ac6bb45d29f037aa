package fakeserver

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// serveMany serves a MultiGet as one batch get for each partition. The script is called for each of
// them. If one gets no answer, the client must ask for that partition alone.
func (n *Node) serveMany(client uint64, r *kvpb.Request) *kvpb.Response {
	c, m := n.cluster, r.GetMultiGet()
	if m.At == nil {
		c.TB.Errorf("a read of several partitions that makes no sense: %v", m)
	}
	old := false
	c.Set(func() {
		if old = c.NoMerges; !old {
			c.Shared++
		}
	})
	if old {
		return Refusal(kvpb.ErrorCode_INVALID_ARGUMENT, "this server does not know that command")
	}
	out := &kvpb.MultiGetResponse{}
	for _, p := range m.Partitions {
		answer := n.serve(client, &kvpb.Request{
			Partition: p.Partition, Generation: p.Generation, Term: p.Term, Session: r.Session,
			TimeoutMicros: r.TimeoutMicros,
			Command: &kvpb.Request_BatchGet{BatchGet: &kvpb.BatchGetRequest{Keys: p.Keys, At: m.At,
				Context: m.Context}},
		})
		switch {
		case answer == nil:
			out.Alone = append(out.Alone, p.Partition)
		case answer.Error != nil:
			out.Refused = append(out.Refused, &kvpb.PartitionRefusal{Partition: p.Partition,
				Error: answer.Error})
		default:
			for i, v := range answer.GetBatchGet().Values {
				if v.Found {
					out.Rows = wire.AppendRow(out.Rows, p.Keys[i], v.Value,
						wire.FromTimestamp(v.Version), int64(v.Expires))
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Hangs {
		return nil
	}
	return n.dated(&kvpb.Response{Result: &kvpb.Response_MultiGet{MultiGet: out}})
}

// mergeLocked scans several partitions one by one, sorts the rows, and cuts the page off. The
// script is called for each partition.
func (n *Node) mergeLocked(client uint64, r *kvpb.Request) *kvpb.Response {
	c, m := n.cluster, r.GetMergeScan()
	if len(m.Partitions) == 0 || len(m.Partitions) > 256 ||
		(m.At != nil && (m.MaxRows == 0 || m.MaxBytes == 0)) {
		c.TB.Errorf("a scan of several partitions that makes no sense: %v", m)
	}
	if c.NoMerges || (c.NoMoments && m.At == nil) {
		return Refusal(kvpb.ErrorCode_INVALID_ARGUMENT, "this server does not know that command")
	}
	pageRows := c.PageRows
	defer func() { c.PageRows = pageRows }()
	c.PageRows = 1 << 30
	out := &kvpb.MergeScanResponse{}
	var rows []wire.Row
	timeless := m.At == nil && n.Timeless > 0
	if timeless {
		n.Timeless--
	}
	var last uint64
	for _, route := range m.Partitions {
		if route.Partition <= last || route.Term == 0 {
			c.TB.Errorf("partition %d at term %d after partition %d", route.Partition, route.Term,
				last)
		}
		last = route.Partition
		answer := n.partOfMergeLocked(client, r, route, timeless)
		switch {
		case answer.Error.GetCode() == kvpb.ErrorCode_UNCERTAIN:
			return answer
		case answer.Error != nil:
			out.Refused = append(out.Refused, &kvpb.PartitionRefusal{Partition: route.Partition,
				Error: answer.Error})
		case m.At == nil:
			out.At = wire.ToTimestamp(hlc.Max(wire.FromTimestamp(out.At),
				wire.FromTimestamp(answer.GetScan().At)))
		default:
			page, err := wire.DecodeRows(answer.GetScan().Rows)
			if err != nil {
				c.TB.Error(err)
			}
			rows = append(rows, page...)
		}
	}
	out.Rows, out.More, out.Resume = c.page(rows, m.Reverse, min(int(m.MaxRows), pageRows),
		int(m.MaxBytes))
	return &kvpb.Response{Result: &kvpb.Response_MergeScan{MergeScan: out}}
}

// partOfMergeLocked scans one of the partitions.
func (n *Node) partOfMergeLocked(client uint64, r *kvpb.Request, route *kvpb.PartitionRoute,
	timeless bool) *kvpb.Response {
	c, m := n.cluster, r.GetMergeScan()
	one := &kvpb.Request{
		Partition: route.Partition, Generation: route.Generation, Term: route.Term,
		Session: r.Session, TimeoutMicros: r.TimeoutMicros,
		Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{
			Start: m.Start, End: m.End, KeysOnly: m.KeysOnly, MaxRows: 1 << 30, MaxBytes: 1 << 30,
			At: m.At, UncertainUntil: m.UncertainUntil,
		}},
	}
	var f Fault
	if c.Script != nil {
		f = c.Script(n, one)
	}
	if timeless {
		f.Code = kvpb.ErrorCode_CLOCK_SKEW
	}
	if f.Code != 0 {
		return Refusal(f.Code, "scripted "+f.Code.String())
	}
	return n.routeLocked(client, one)
}

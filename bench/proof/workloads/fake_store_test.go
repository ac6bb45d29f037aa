package workloads

import (
	"bytes"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

type fakePartition struct {
	desc   *clusterpb.Partition
	leader *fakeNode
	// highest is the newest version, read the newest read.
	highest, read hlc.Timestamp
	versions      map[string][]fakeVersion // oldest first
	deletions     map[fakeID]*kvpb.DeleteRangeResponse
}

// fakeID is a write of a client.
type fakeID struct{ client, sequence uint64 }

type fakeVersion struct {
	at        hlc.Timestamp
	value     []byte
	tombstone bool
	id        fakeID
}

// handle serves requests; some answers get lost with the node's connections.
func (n *fakeNode) handle(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
	for _, r := range batch {
		response, broken := n.serve(client, r)
		if broken {
			go n.drop()
			return
		}
		response.Id = r.Id
		reply(response)
	}
}

// fakeTerm is every leader's.
const fakeTerm = 5

func isWrite(r *kvpb.Request) bool {
	switch r.Command.(type) {
	case *kvpb.Request_Put, *kvpb.Request_Delete, *kvpb.Request_CompareAndSwap, *kvpb.Request_WriteBatch, *kvpb.Request_DeleteRange:
		return true
	}
	return false
}

func refusal(code kvpb.ErrorCode, message string) *kvpb.Response {
	return &kvpb.Response{Error: &kvpb.Error{Code: code, Message: message}}
}

// oneOf is true for one of n calls.
func (c *fakeCluster) oneOf(n int) bool { return c.random.IntN(n) == 0 }

func (n *fakeNode) serve(client uint64, r *kvpb.Request) (response *kvpb.Response, broken bool) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = n.clock.Update(rpc.FromTimestamp(r.Session))
	defer func() {
		if response != nil {
			response.Now = rpc.ToTimestamp(hlc.Max(n.clock.Now(), n.given))
		}
	}()
	if _, now := r.Command.(*kvpb.Request_Now); now {
		return &kvpb.Response{Result: &kvpb.Response_NowResult{NowResult: &kvpb.NowResponse{Node: n.id}}}, false
	}
	if r.GetMergeScan() != nil {
		return n.merge(r.GetMergeScan()), c.oneOf(200)
	}
	p := c.partitions[r.Partition]
	switch {
	case p == nil || p.leader != n:
		return refusal(kvpb.ErrorCode_PARTITION_NOT_FOUND, "no such partition here"), false
	case r.Generation != p.desc.Generation:
		return refusal(kvpb.ErrorCode_STALE_EPOCH, "another generation"), false
	case r.Term != fakeTerm && (isWrite(r) || r.Term != 0): // a write without a term asks who leads
		refused := refusal(kvpb.ErrorCode_NOT_LEADER, "another term")
		refused.Error.Leader = &clusterpb.Leader{Partition: r.Partition, Node: n.id, Term: fakeTerm}
		return refused, false
	case c.oneOf(400):
		return nil, true
	}
	if response = n.readLocked(p, r); response == nil {
		response = n.writeLocked(p, r, fakeID{client, r.Sequence})
	}
	return response, c.oneOf(200)
}

// live is the version of a key at a moment; nil if there is none, or a tombstone.
func (p *fakePartition) live(key string, at hlc.Timestamp) *fakeVersion {
	v := p.versions[key]
	for i := len(v) - 1; i >= 0; i-- {
		if v[i].at.LessEq(at) {
			if v[i].tombstone {
				return nil
			}
			return &v[i]
		}
	}
	return nil
}

func (p *fakePartition) keysIn(start, end []byte, at hlc.Timestamp) []string {
	var found []string
	span := keys.Span{Start: start, End: end}
	for key := range p.versions {
		if span.Contains([]byte(key)) && p.live(key, at) != nil {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	return found
}

// executed is the version that a write made when it came before.
func (n *fakeNode) executed(p *fakePartition, key []byte, id fakeID) *fakeVersion {
	if n.cluster.mistakes.doubledRetries {
		return nil
	}
	for i := range p.versions[string(key)] {
		if v := &p.versions[string(key)][i]; v.id == id {
			return v
		}
	}
	return nil
}

// stamp is the timestamp of a write.
func (n *fakeNode) stamp(p *fakePartition, session hlc.Timestamp) hlc.Timestamp {
	m := n.cluster.mistakes
	at := n.clock.Now()
	floors := []hlc.Timestamp{p.highest}
	if m.lowWrites || m.droppedSession {
		at = hlc.Timestamp{Wall: n.Now()} // the clock as if nobody had told it anything
	}
	if !m.lowWrites {
		floors = append(floors, p.read)
	}
	if !m.droppedSession && !m.lowWrites {
		floors = append(floors, session)
	}
	for _, floor := range floors {
		at = hlc.Max(at, floor.Next())
	}
	p.highest = hlc.Max(p.highest, at)
	n.given = hlc.Max(n.given, at)
	return at
}

// write makes a version.
func (n *fakeNode) write(p *fakePartition, key, value []byte, tombstone bool, at hlc.Timestamp, id fakeID) {
	c := n.cluster
	if c.mistakes.lostWrites && c.oneOf(20) {
		return
	}
	p.versions[string(key)] = append(p.versions[string(key)], fakeVersion{at, bytes.Clone(value), tombstone, id})
	if c.mistakes.lostSoon && c.oneOf(20) {
		time.AfterFunc(30*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			p.versions[string(key)] = slices.DeleteFunc(p.versions[string(key)], func(v fakeVersion) bool { return v.at == at })
		})
	}
}

func (n *fakeNode) writeLocked(p *fakePartition, r *kvpb.Request, id fakeID) *kvpb.Response {
	c := n.cluster
	at := hlc.Timestamp{}
	stamp := func() hlc.Timestamp {
		if at.IsZero() {
			at = n.stamp(p, rpc.FromTimestamp(r.Session))
		}
		return at
	}
	response := &kvpb.Response{}
	switch w := r.Command.(type) {
	case *kvpb.Request_Put:
		if v := n.executed(p, w.Put.Key, id); v != nil {
			at = v.at
		} else {
			n.write(p, w.Put.Key, w.Put.Value, false, stamp(), id)
		}
		response.Result = &kvpb.Response_Put{Put: &kvpb.PutResponse{Version: rpc.ToTimestamp(at)}}
	case *kvpb.Request_Delete:
		existed := false
		if v := n.executed(p, w.Delete.Key, id); v != nil {
			existed = true
		} else if existed = p.live(string(w.Delete.Key), hlc.MaxTimestamp) != nil; existed {
			n.write(p, w.Delete.Key, nil, true, stamp(), id)
		}
		response.Result = &kvpb.Response_Delete{Delete: &kvpb.DeleteResponse{Existed: existed}}
	case *kvpb.Request_CompareAndSwap:
		response.Result = &kvpb.Response_CompareAndSwap{CompareAndSwap: n.swap(p, w.CompareAndSwap, id, stamp)}
	case *kvpb.Request_WriteBatch:
		if v := n.executed(p, w.WriteBatch.Operations[0].Key, id); v != nil {
			at = v.at
		} else {
			operations := w.WriteBatch.Operations
			if c.mistakes.tornBatches && c.oneOf(20) {
				operations = operations[:len(operations)/2]
			}
			for _, o := range operations {
				n.write(p, o.Key, o.Value, o.Delete, stamp(), id)
			}
		}
		response.Result = &kvpb.Response_WriteBatch{WriteBatch: &kvpb.WriteBatchResponse{Version: rpc.ToTimestamp(at)}}
	case *kvpb.Request_DeleteRange:
		out := p.deletions[id]
		if out == nil || c.mistakes.doubledRetries {
			out = &kvpb.DeleteRangeResponse{}
			for _, key := range p.keysIn(w.DeleteRange.Start, w.DeleteRange.End, hlc.MaxTimestamp) {
				if out.Deleted == 5 {
					out.More, out.Resume = true, []byte(key)
					break
				}
				out.Deleted++
				if !c.mistakes.undeleted || !c.oneOf(5) {
					n.write(p, []byte(key), nil, true, stamp(), id)
				}
			}
			p.deletions[id] = out
		}
		response.Result = &kvpb.Response_DeleteRange{DeleteRange: cloned(out)}
	default:
		return refusal(kvpb.ErrorCode_INVALID_ARGUMENT, "no such request")
	}
	if c.mistakes.refusedWrites && c.oneOf(20) {
		return refusal(kvpb.ErrorCode_CORRUPTION, "a refusal that is a lie")
	}
	return response
}

func (n *fakeNode) swap(p *fakePartition, s *kvpb.CompareAndSwapRequest, id fakeID, stamp func() hlc.Timestamp) *kvpb.CompareAndSwapResponse {
	if v := n.executed(p, s.Key, id); v != nil {
		return &kvpb.CompareAndSwapResponse{Swapped: true, Version: rpc.ToTimestamp(v.at)}
	}
	v := p.live(string(s.Key), hlc.MaxTimestamp)
	matches := false
	switch e := s.Expected.(type) {
	case *kvpb.CompareAndSwapRequest_Absent:
		matches = v == nil
	case *kvpb.CompareAndSwapRequest_Value:
		matches = v != nil && bytes.Equal(v.value, e.Value)
	case *kvpb.CompareAndSwapRequest_Version:
		matches = v != nil && v.at == rpc.FromTimestamp(e.Version)
	}
	if n.cluster.mistakes.blindSwaps && n.cluster.oneOf(10) {
		matches = true
	}
	if matches {
		n.write(p, s.Key, s.NewValue, s.Delete, stamp(), id)
		return &kvpb.CompareAndSwapResponse{Swapped: true, Version: rpc.ToTimestamp(stamp())}
	}
	if v == nil {
		return &kvpb.CompareAndSwapResponse{}
	}
	return &kvpb.CompareAndSwapResponse{Found: true, Current: v.value, CurrentVersion: rpc.ToTimestamp(v.at)}
}

// readLocked serves a read; nil if it is none.
func (n *fakeNode) readLocked(p *fakePartition, r *kvpb.Request) *kvpb.Response {
	c := n.cluster
	moment := func(asked *kvpb.Timestamp) (reads, answers hlc.Timestamp) {
		at := rpc.FromTimestamp(asked)
		if at.IsZero() {
			at = hlc.Max(hlc.Max(n.clock.Now(), rpc.FromTimestamp(r.Session)), p.highest)
		}
		n.given = hlc.Max(n.given, at)
		p.read = hlc.Max(p.read, at)
		if c.mistakes.staleReads && asked == nil && c.oneOf(10) {
			return at.Add(-500 * time.Millisecond), at
		}
		return at, at
	}
	get := func(key []byte, at hlc.Timestamp) *kvpb.GetResponse {
		if v := p.live(string(key), at); v != nil {
			return &kvpb.GetResponse{Found: true, Value: v.value, Version: rpc.ToTimestamp(v.at)}
		}
		return &kvpb.GetResponse{}
	}
	switch q := r.Command.(type) {
	case *kvpb.Request_Get:
		at, _ := moment(q.Get.At)
		return &kvpb.Response{Result: &kvpb.Response_Get{Get: get(q.Get.Key, at)}}
	case *kvpb.Request_BatchGet:
		reads, at := moment(q.BatchGet.At)
		out := &kvpb.BatchGetResponse{At: rpc.ToTimestamp(at)}
		for _, key := range q.BatchGet.Keys {
			out.Values = append(out.Values, get(key, reads))
		}
		return &kvpb.Response{Result: &kvpb.Response_BatchGet{BatchGet: out}}
	case *kvpb.Request_Scan:
		if m := c.mistakes.failedScans; m > 0 && c.oneOf(m) {
			return refusal(kvpb.ErrorCode_CORRUPTION, "a scan that fails")
		}
		reads, at := moment(q.Scan.At)
		if c.mistakes.presentScans {
			reads = hlc.MaxTimestamp
		}
		out := &kvpb.ScanResponse{At: rpc.ToTimestamp(at)}
		out.Rows, out.More, out.Resume = c.page(p.rows(q.Scan.Start, q.Scan.End, reads), q.Scan.Reverse, q.Scan.MaxRows)
		return &kvpb.Response{Result: &kvpb.Response_Scan{Scan: out}}
	case *kvpb.Request_Count:
		reads, at := moment(q.Count.At)
		out := &kvpb.CountResponse{Count: uint64(len(p.keysIn(q.Count.Start, q.Count.End, reads))), At: rpc.ToTimestamp(at)}
		if c.mistakes.miscount && out.Count > 0 && c.oneOf(10) {
			out.Count--
		}
		return &kvpb.Response{Result: &kvpb.Response_Count{Count: out}}
	}
	return nil
}

// rows are what a span has at a moment, ascending.
func (p *fakePartition) rows(start, end []byte, at hlc.Timestamp) (rows []rpc.Row) {
	for _, key := range p.keysIn(start, end, at) {
		v := p.live(key, at)
		rows = append(rows, rpc.Row{Key: []byte(key), Value: v.value, Version: v.at})
	}
	return rows
}

// page cuts a page off the rows, which are ascending.
func (c *fakeCluster) page(rows []rpc.Row, reverse bool, maxRows uint32) (encoded []byte, more bool, resume []byte) {
	slices.SortFunc(rows, func(a, b rpc.Row) int {
		if reverse {
			a, b = b, a
		}
		return bytes.Compare(a.Key, b.Key)
	})
	for i, row := range rows {
		if i == min(int(maxRows), 7) {
			// The page ends with the first key of the rest; in a reverse scan with the end of it, which is not in it.
			next := i
			if c.mistakes.lostRows && c.oneOf(10) && i+1 < len(rows) {
				next = i + 1
			}
			if c.mistakes.repeatedRows && c.oneOf(10) && i > 1 {
				next = i - 1
			}
			if reverse {
				next--
			}
			return encoded, true, rows[next].Key
		}
		encoded = rpc.AppendRow(encoded, row.Key, row.Value, row.Version)
	}
	return encoded, false, nil
}

// merge serves a scan of several hash partitions that the node leads.
func (n *fakeNode) merge(m *kvpb.MergeScanRequest) *kvpb.Response {
	c := n.cluster
	at := rpc.FromTimestamp(m.At)
	out := &kvpb.MergeScanResponse{}
	var rows []rpc.Row
	for _, route := range m.Partitions {
		p := c.partitions[route.Partition]
		if p == nil || p.leader != n || route.Generation != p.desc.Generation || route.Term != fakeTerm {
			out.Refused = append(out.Refused, &kvpb.PartitionRefusal{Partition: route.Partition,
				Error: refusal(kvpb.ErrorCode_PARTITION_NOT_FOUND, "no such partition here").Error})
			continue
		}
		p.read = hlc.Max(p.read, at)
		reads := at
		if c.mistakes.presentScans {
			reads = hlc.MaxTimestamp
		}
		rows = append(rows, p.rows(m.Start, m.End, reads)...)
	}
	n.given = hlc.Max(n.given, at)
	out.Rows, out.More, out.Resume = c.page(rows, m.Reverse, m.MaxRows)
	return &kvpb.Response{Result: &kvpb.Response_MergeScan{MergeScan: out}}
}

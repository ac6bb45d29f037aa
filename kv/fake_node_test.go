package kv

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// handle serves requests as a node would, one at a time.
func (n *fakeNode) handle(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
	n.cluster.set(func() {
		kinds := make(map[string]bool)
		for _, r := range batch {
			kinds[kindOf(r)] = true
		}
		for kind := range kinds {
			n.cluster.messages[kind]++
		}
	})
	for _, r := range batch {
		if response := n.serve(client, r); response != nil {
			response.Id = r.Id
			if n.cluster.heard != nil {
				n.cluster.heard(n, r, response)
			}
			reply(response)
		}
	}
}

// kindOf is the name of a request's command. A MultiGet is several batch gets.
func kindOf(r *kvpb.Request) string {
	if r.GetMultiGet() != nil {
		return "batchget"
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", r.Command), "*kvpb.Request_"))
}

func isWrite(r *kvpb.Request) bool {
	switch r.Command.(type) {
	case *kvpb.Request_Put, *kvpb.Request_Delete, *kvpb.Request_CompareAndSwap, *kvpb.Request_WriteBatch, *kvpb.Request_DeleteRange,
		*kvpb.Request_Prepare, *kvpb.Request_EndTransaction, *kvpb.Request_Resolve, *kvpb.Request_HeartbeatTransaction:
		return true
	}
	return false
}

func failed(code kvpb.ErrorCode, message string) *kvpb.Response {
	return &kvpb.Response{Error: &kvpb.Error{Code: code, Message: message}}
}

func (n *fakeNode) serve(client uint64, r *kvpb.Request) *kvpb.Response {
	if r.GetMultiGet() != nil {
		return n.serveMany(client, r)
	}
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[kindOf(r)]++
	if n.hangs {
		return nil
	}
	_ = n.clock.Update(rpc.FromTimestamp(r.Session))
	if _, now := r.Command.(*kvpb.Request_Now); now {
		if n.timeless > 0 {
			n.timeless--
			return failed(kvpb.ErrorCode_CLOCK_SKEW, "its clock has just been set")
		}
		return &kvpb.Response{Now: rpc.ToTimestamp(n.nowLocked()), Result: &kvpb.Response_NowResult{NowResult: &kvpb.NowResponse{Node: n.id}}}
	}
	var f fault
	if c.script != nil {
		f = c.script(n, r)
	}
	switch {
	case f.code != 0:
		return failed(f.code, "scripted "+f.code.String())
	case f.swallow:
		return nil
	case f.breakBefore:
		go c.network.Drop("client", n.host)
		return nil
	}
	var response *kvpb.Response
	if r.GetMergeScan() != nil {
		response = n.mergeLocked(client, r)
	} else {
		response = n.routeLocked(client, r)
	}
	response.Now = rpc.ToTimestamp(n.nowLocked())
	switch {
	case f.breakAfter:
		go c.network.Drop("client", n.host)
		return nil
	case f.unknown:
		return failed(kvpb.ErrorCode_OUTCOME_UNKNOWN, "scripted unknown outcome")
	}
	return response
}

// serveMany serves a MultiGet as so many batch gets. The script is asked about each; one that is not answered is left to be asked by itself.
func (n *fakeNode) serveMany(client uint64, r *kvpb.Request) *kvpb.Response {
	c, m := n.cluster, r.GetMultiGet()
	if m.At == nil {
		c.t.Errorf("a read of several partitions that makes no sense: %v", m)
	}
	old := false
	c.set(func() {
		if old = c.noMerges; !old {
			c.shared++
		}
	})
	if old {
		return failed(kvpb.ErrorCode_INVALID_ARGUMENT, "this server does not know that command")
	}
	out := &kvpb.MultiGetResponse{}
	for _, p := range m.Partitions {
		answer := n.serve(client, &kvpb.Request{Partition: p.Partition, Generation: p.Generation, Term: p.Term, Session: r.Session, TimeoutMicros: r.TimeoutMicros,
			Command: &kvpb.Request_BatchGet{BatchGet: &kvpb.BatchGetRequest{Keys: p.Keys, At: m.At, Context: m.Context}}})
		switch {
		case answer == nil:
			out.Alone = append(out.Alone, p.Partition)
		case answer.Error != nil:
			out.Refused = append(out.Refused, &kvpb.PartitionRefusal{Partition: p.Partition, Error: answer.Error})
		default:
			for i, v := range answer.GetBatchGet().Values {
				if v.Found {
					out.Rows = rpc.AppendRow(out.Rows, p.Keys[i], v.Value, rpc.FromTimestamp(v.Version))
				}
			}
		}
	}
	var now hlc.Timestamp
	hangs := false
	c.set(func() { now, hangs = n.nowLocked(), n.hangs })
	if hangs {
		return nil
	}
	return &kvpb.Response{Now: rpc.ToTimestamp(now), Result: &kvpb.Response_MultiGet{MultiGet: out}}
}

// nowLocked is the node's clock: at or above every timestamp that it has given out.
func (n *fakeNode) nowLocked() hlc.Timestamp { return hlc.Max(n.clock.Now(), n.given) }

func (n *fakeNode) routeLocked(client uint64, r *kvpb.Request) *kvpb.Response {
	p := n.cluster.partitions[r.Partition]
	if p == nil || !slices.ContainsFunc(p.desc.Replicas, func(x *clusterpb.Replica) bool { return x.Node == n.id }) {
		return failed(kvpb.ErrorCode_PARTITION_NOT_FOUND, "no such partition here")
	}
	if r.Generation != p.desc.Generation {
		e := failed(kvpb.ErrorCode_STALE_EPOCH, "another generation")
		for _, other := range n.cluster.partitions {
			if other.desc.Keyspace == p.desc.Keyspace {
				e.Error.Partitions = append(e.Error.Partitions, other.desc)
			}
		}
		return e
	}
	if p.leader != n.id || r.Term != p.term && (isWrite(r) || r.Term != 0) {
		e := failed(kvpb.ErrorCode_NOT_LEADER, "not the leader")
		if p.leader != 0 {
			e.Error.Leader = &clusterpb.Leader{Partition: r.Partition, Node: p.leader, Term: p.term}
		}
		return e
	}
	if r.TimeoutMicros > uint64(time.Hour/time.Microsecond) {
		n.cluster.t.Errorf("a timeout of %d µs", r.TimeoutMicros)
	}
	if isWrite(r) {
		return n.writeLocked(p, client, r)
	}
	return n.readLocked(p, r)
}

// live returns the version of a key at a timestamp; nil if there is none, or a tombstone.
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

// own finds the version that a request wrote.
func (p *fakePartition) own(key string, client, sequence uint64) *fakeVersion {
	for i := range p.versions[key] {
		if v := &p.versions[key][i]; v.client == client && v.sequence == sequence {
			return v
		}
	}
	return nil
}

func (n *fakeNode) writeLocked(p *fakePartition, client uint64, r *kvpb.Request) *kvpb.Response {
	if r.Sequence == 0 {
		n.cluster.t.Errorf("a write without a sequence")
	}
	var at hlc.Timestamp
	stamp := func() hlc.Timestamp {
		if at.IsZero() {
			at = n.clock.Now()
			for _, floor := range []hlc.Timestamp{p.highest, p.read, p.low, rpc.FromTimestamp(r.Session)} {
				at = hlc.Max(at, floor.Next())
			}
			p.highest = at
			n.given = hlc.Max(n.given, at)
		}
		return at
	}
	write := func(key, value []byte, tombstone bool) {
		p.versions[string(key)] = append(p.versions[string(key)],
			fakeVersion{at: stamp(), value: bytes.Clone(value), tombstone: tombstone, client: client, sequence: r.Sequence})
	}
	latest := hlc.MaxTimestamp
	switch c := r.Command.(type) {
	case *kvpb.Request_Prepare:
		return n.prepareLocked(p, client, r.Sequence, c.Prepare, stamp)
	case *kvpb.Request_EndTransaction:
		return n.endLocked(c.EndTransaction)
	case *kvpb.Request_Resolve, *kvpb.Request_HeartbeatTransaction:
		return &kvpb.Response{} // there is nothing to do
	case *kvpb.Request_Put:
		if v := p.own(string(c.Put.Key), client, r.Sequence); v != nil {
			at = v.at
		} else {
			write(c.Put.Key, c.Put.Value, false)
		}
		return &kvpb.Response{Result: &kvpb.Response_Put{Put: &kvpb.PutResponse{Version: rpc.ToTimestamp(at)}}}
	case *kvpb.Request_Delete:
		existed := false
		if v := p.own(string(c.Delete.Key), client, r.Sequence); v != nil {
			existed = p.live(string(c.Delete.Key), v.at.Prev()) != nil
		} else if existed = p.live(string(c.Delete.Key), latest) != nil; existed {
			write(c.Delete.Key, nil, true)
		}
		return &kvpb.Response{Result: &kvpb.Response_Delete{Delete: &kvpb.DeleteResponse{Existed: existed}}}
	case *kvpb.Request_CompareAndSwap:
		s := c.CompareAndSwap
		if v := p.own(string(s.Key), client, r.Sequence); v != nil {
			return &kvpb.Response{Result: &kvpb.Response_CompareAndSwap{CompareAndSwap: &kvpb.CompareAndSwapResponse{Swapped: true, Version: rpc.ToTimestamp(v.at)}}}
		}
		v := p.live(string(s.Key), latest)
		ok := false
		switch e := s.Expected.(type) {
		case *kvpb.CompareAndSwapRequest_Absent:
			ok = v == nil
		case *kvpb.CompareAndSwapRequest_Value:
			ok = v != nil && bytes.Equal(v.value, e.Value)
		case *kvpb.CompareAndSwapRequest_Version:
			ok = v != nil && v.at == rpc.FromTimestamp(e.Version)
		}
		out := &kvpb.CompareAndSwapResponse{Swapped: ok}
		if ok {
			write(s.Key, s.NewValue, s.Delete)
			out.Version = rpc.ToTimestamp(at)
		} else if v != nil {
			out.Found, out.Current, out.CurrentVersion = true, v.value, rpc.ToTimestamp(v.at)
		}
		return &kvpb.Response{Result: &kvpb.Response_CompareAndSwap{CompareAndSwap: out}}
	case *kvpb.Request_WriteBatch:
		if v := p.own(string(c.WriteBatch.Operations[0].Key), client, r.Sequence); v != nil {
			at = v.at
		} else {
			for _, o := range c.WriteBatch.Operations {
				if n.cluster.keyspaces[p.desc.Keyspace].Partitioning == clusterpb.Partitioning_RANGE && !keys.PartitionContains(p.desc, o.Key) {
					return failed(kvpb.ErrorCode_KEY_OUT_OF_SPAN, "a key of the batch lies elsewhere")
				}
			}
			for _, o := range c.WriteBatch.Operations {
				write(o.Key, o.Value, o.Delete)
			}
		}
		return &kvpb.Response{Result: &kvpb.Response_WriteBatch{WriteBatch: &kvpb.WriteBatchResponse{Version: rpc.ToTimestamp(at)}}}
	case *kvpb.Request_DeleteRange:
		id := [2]uint64{client, r.Sequence}
		out := p.ranges[id]
		if out == nil {
			out = &kvpb.DeleteRangeResponse{}
			for _, key := range p.keysIn(c.DeleteRange.Start, c.DeleteRange.End, latest) {
				if out.Deleted == uint64(min(int(c.DeleteRange.MaxRows), n.cluster.pageRows)) {
					out.More, out.Resume = true, []byte(key)
					break
				}
				write([]byte(key), nil, true)
				out.Deleted++
			}
			p.ranges[id] = out
		}
		return &kvpb.Response{Result: &kvpb.Response_DeleteRange{DeleteRange: cloned(out)}}
	}
	return failed(kvpb.ErrorCode_INVALID_ARGUMENT, "no such write")
}

// keysIn are the keys of a span that have a value, ascending.
func (p *fakePartition) keysIn(start, end []byte, at hlc.Timestamp) []string {
	var out []string
	span := keys.Span{Start: start, End: end}
	for key := range p.versions {
		if span.Contains([]byte(key)) && p.live(key, at) != nil {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

func (n *fakeNode) readLocked(p *fakePartition, r *kvpb.Request) *kvpb.Response {
	moment := func(asked *kvpb.Timestamp) hlc.Timestamp {
		at := rpc.FromTimestamp(asked)
		if at.IsZero() {
			at = hlc.Max(hlc.Max(n.clock.Now(), rpc.FromTimestamp(r.Session)), p.highest)
		}
		n.given = hlc.Max(n.given, at)
		p.read = hlc.Max(p.read, at)
		return at
	}
	get := func(key []byte, at hlc.Timestamp) *kvpb.GetResponse {
		if v := p.live(string(key), at); v != nil {
			return &kvpb.GetResponse{Found: true, Value: v.value, Version: rpc.ToTimestamp(v.at)}
		}
		return &kvpb.GetResponse{}
	}
	switch c := r.Command.(type) {
	case *kvpb.Request_Get:
		at := moment(c.Get.At)
		if e := p.uncertain(c.Get.Key, keys.Next(c.Get.Key), at, c.Get.Context.GetUncertainUntil()); e != nil {
			if !c.Get.Context.Movable {
				return e
			}
			at = moment(e.Error.Timestamp)
		}
		n.pushLocked(p, keys.Point(c.Get.Key), at, c.Get.Context)
		out := get(c.Get.Key, at)
		if c.Get.Context != nil {
			out.At = rpc.ToTimestamp(at)
		}
		return &kvpb.Response{Result: &kvpb.Response_Get{Get: out}}
	case *kvpb.Request_Refresh:
		return n.refreshLocked(p, c.Refresh)
	case *kvpb.Request_BatchGet:
		at := moment(c.BatchGet.At)
		out := &kvpb.BatchGetResponse{At: rpc.ToTimestamp(at)}
		size := 0
		for _, key := range c.BatchGet.Keys {
			if e := p.uncertain(key, keys.Next(key), at, c.BatchGet.Context.GetUncertainUntil()); e != nil {
				return e
			}
			n.pushLocked(p, keys.Point(key), at, c.BatchGet.Context)
			v := get(key, at)
			size += len(v.Value)
			out.Values = append(out.Values, v)
		}
		if size > 1<<20 {
			return failed(kvpb.ErrorCode_INVALID_ARGUMENT, "too much for one answer")
		}
		return &kvpb.Response{Result: &kvpb.Response_BatchGet{BatchGet: out}}
	case *kvpb.Request_Scan:
		at := moment(c.Scan.At)
		if e := p.uncertain(c.Scan.Start, c.Scan.End, at, either(c.Scan.UncertainUntil, c.Scan.Context)); e != nil {
			return e
		}
		n.pushLocked(p, keys.Span{Start: c.Scan.Start, End: c.Scan.End}, at, c.Scan.Context)
		found := p.keysIn(c.Scan.Start, c.Scan.End, at)
		if c.Scan.Reverse {
			slices.Reverse(found)
		}
		out, size := &kvpb.ScanResponse{At: rpc.ToTimestamp(at)}, 0
		for i, key := range found {
			if i > 0 && (i == min(int(c.Scan.MaxRows), n.cluster.pageRows) || size >= int(c.Scan.MaxBytes)) {
				out.More, out.Resume = true, []byte(key)
				if c.Scan.Reverse {
					out.Resume = []byte(found[i-1])
				}
				break
			}
			v := p.live(key, at)
			var value []byte
			if !c.Scan.KeysOnly {
				value = v.value
			}
			size += len(key) + len(value)
			out.Rows = rpc.AppendRow(out.Rows, []byte(key), value, v.at)
		}
		return &kvpb.Response{Result: &kvpb.Response_Scan{Scan: out}}
	case *kvpb.Request_Count:
		at := moment(c.Count.At)
		if e := p.uncertain(c.Count.Start, c.Count.End, at, either(c.Count.UncertainUntil, c.Count.Context)); e != nil {
			return e
		}
		n.pushLocked(p, keys.Span{Start: c.Count.Start, End: c.Count.End}, at, c.Count.Context)
		found := p.keysIn(c.Count.Start, c.Count.End, at)
		out := &kvpb.CountResponse{Count: uint64(len(found)), At: rpc.ToTimestamp(at)}
		if limit := n.cluster.pageRows; len(found) > limit {
			out.Count, out.More, out.Resume = uint64(limit), true, []byte(found[limit])
		}
		return &kvpb.Response{Result: &kvpb.Response_Count{Count: out}}
	}
	return failed(kvpb.ErrorCode_INVALID_ARGUMENT, "no such read")
}

// mergeLocked scans several partitions one by one, sorts, and cuts the page off. The script is asked about each.
func (n *fakeNode) mergeLocked(client uint64, r *kvpb.Request) *kvpb.Response {
	c, m := n.cluster, r.GetMergeScan()
	if len(m.Partitions) == 0 || len(m.Partitions) > 256 || (m.At != nil && (m.MaxRows == 0 || m.MaxBytes == 0)) {
		c.t.Errorf("a scan of several partitions that makes no sense: %v", m)
	}
	if c.noMerges || (c.noMoments && m.At == nil) {
		return failed(kvpb.ErrorCode_INVALID_ARGUMENT, "this server does not know that command")
	}
	pageRows := c.pageRows
	defer func() { c.pageRows = pageRows }()
	c.pageRows = 1 << 30
	out := &kvpb.MergeScanResponse{}
	var last uint64
	var rows []rpc.Row
	timeless := m.At == nil && n.timeless > 0
	if timeless {
		n.timeless--
	}
	for _, route := range m.Partitions {
		if route.Partition <= last || route.Term == 0 {
			c.t.Errorf("partition %d at term %d after partition %d", route.Partition, route.Term, last)
		}
		last = route.Partition
		one := &kvpb.Request{Partition: route.Partition, Generation: route.Generation, Term: route.Term, Session: r.Session, TimeoutMicros: r.TimeoutMicros,
			Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: m.Start, End: m.End, KeysOnly: m.KeysOnly,
				MaxRows: 1 << 30, MaxBytes: 1 << 30, At: m.At, UncertainUntil: m.UncertainUntil}}}
		var answer *kvpb.Response
		var f fault
		if c.script != nil {
			f = c.script(n, one)
		}
		if timeless {
			f.code = kvpb.ErrorCode_CLOCK_SKEW
		}
		if f.code != 0 {
			answer = failed(f.code, "scripted "+f.code.String())
		} else {
			answer = n.routeLocked(client, one)
		}
		switch {
		case answer.Error.GetCode() == kvpb.ErrorCode_UNCERTAIN:
			return answer
		case answer.Error != nil:
			out.Refused = append(out.Refused, &kvpb.PartitionRefusal{Partition: route.Partition, Error: answer.Error})
		case m.At == nil:
			out.At = rpc.ToTimestamp(hlc.Max(rpc.FromTimestamp(out.At), rpc.FromTimestamp(answer.GetScan().At)))
		default:
			page, err := rpc.DecodeRows(answer.GetScan().Rows)
			if err != nil {
				c.t.Error(err)
			}
			rows = append(rows, page...)
		}
	}
	slices.SortFunc(rows, func(a, b rpc.Row) int {
		if m.Reverse {
			return bytes.Compare(b.Key, a.Key)
		}
		return bytes.Compare(a.Key, b.Key)
	})
	size := 0
	for i, pair := range rows {
		if i > 0 && (i >= min(int(m.MaxRows), pageRows) || size >= int(m.MaxBytes)) {
			out.More, out.Resume = true, pair.Key
			if m.Reverse {
				out.Resume = rows[i-1].Key
			}
			break
		}
		size += len(pair.Key) + len(pair.Value)
		out.Rows = rpc.AppendRow(out.Rows, pair.Key, pair.Value, pair.Version)
	}
	return &kvpb.Response{Result: &kvpb.Response_MergeScan{MergeScan: out}}
}

// uncertain refuses a read that meets a version which an earlier leader may have acknowledged before the read began.
func (p *fakePartition) uncertain(start, end []byte, at hlc.Timestamp, until *kvpb.Timestamp) *kvpb.Response {
	limit := hlc.Min(rpc.FromTimestamp(until), p.low)
	span := keys.Span{Start: start, End: end}
	for key, versions := range p.versions {
		for _, v := range versions {
			if span.Contains([]byte(key)) && at.Less(v.at) && v.at.LessEq(limit) {
				e := failed(kvpb.ErrorCode_UNCERTAIN, "a version may have been acknowledged before")
				e.Error.Timestamp = rpc.ToTimestamp(v.at)
				return e
			}
		}
	}
	return nil
}

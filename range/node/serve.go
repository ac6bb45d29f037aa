package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Handle serves a batch of requests of one client; it is rpc.BatchServerConfig.Handle. The requests belong to the node from here
// on, the slice stays the caller's. Each request is answered once, from any goroutine, possibly before Handle returns. Requests
// to one partition reach it together and in their order.
func (n *Node) Handle(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
	if r := n.health.refusal.Load(); r != nil {
		for _, q := range batch {
			n.refuse(q, r.code, r.message, reply)
		}
		return
	}
	now := time.Now()
	if len(batch) == 1 {
		q := batch[0]
		if h := n.route(q, reply); h != nil {
			s := sortings.Get().(*sorting)
			s.pending = append(s.pending[:0], replica.Pending{Client: client, Request: q, Reply: reply, Arrived: now})
			h.replica.Submit(s.pending)
			s.release()
		}
		return
	}
	s := sortings.Get().(*sorting)
	s.begin(len(batch))
	for i, q := range batch {
		if h := n.route(q, reply); h != nil {
			s.add(h, int32(i))
		}
	}
	for i := range s.groups {
		g := &s.groups[i]
		s.pending = s.pending[:0]
		for at := g.first; at >= 0; at = s.next[at] {
			s.pending = append(s.pending, replica.Pending{Client: client, Request: batch[at], Reply: reply, Arrived: now})
		}
		g.h.replica.Submit(s.pending)
	}
	s.release()
}

// route finds the replica that a request is for, or answers the request.
func (n *Node) route(q *kvpb.Request, reply func(*kvpb.Response)) *hosted {
	whole, forNode := inspect(q)
	switch {
	case !whole:
		n.refuse(q, kvpb.ErrorCode_INVALID_ARGUMENT, "the request has no command that this node knows; is the client newer than this server?", reply)
	case forNode:
		reply(&kvpb.Response{Id: q.Id, Now: rpc.ToTimestamp(n.config.Clock.Now()),
			Result: &kvpb.Response_NowResult{NowResult: &kvpb.NowResponse{Node: uint64(n.config.ID)}}})
	default:
		if h := n.replicas.get(keys.PartitionID(q.Partition)); h != nil {
			return h
		}
		n.notHere(q, reply)
	}
	return nil
}

// inspect says whether a request has a command, and one with contents, and whether it is for the node itself.
func inspect(q *kvpb.Request) (whole, forNode bool) {
	switch c := q.Command.(type) {
	case *kvpb.Request_Get:
		return c.Get != nil, false
	case *kvpb.Request_Put:
		return c.Put != nil, false
	case *kvpb.Request_Delete:
		return c.Delete != nil, false
	case *kvpb.Request_CompareAndSwap:
		return c.CompareAndSwap != nil, false
	case *kvpb.Request_WriteBatch:
		return c.WriteBatch != nil, false
	case *kvpb.Request_BatchGet:
		return c.BatchGet != nil, false
	case *kvpb.Request_Scan:
		return c.Scan != nil, false
	case *kvpb.Request_Count:
		return c.Count != nil, false
	case *kvpb.Request_DeleteRange:
		return c.DeleteRange != nil, false
	case *kvpb.Request_Now:
		return true, true
	}
	return false, false
}

// refuse answers a request that did not run.
func (n *Node) refuse(q *kvpb.Request, code kvpb.ErrorCode, message string, reply func(*kvpb.Response)) {
	n.metrics.refused.Inc()
	reply(&kvpb.Response{Id: q.Id, Now: rpc.ToTimestamp(n.config.Clock.Now()), Error: &kvpb.Error{Code: code, Message: message}})
}

// notHere answers a request to a partition of which this node has no replica, with what it knows of it.
func (n *Node) notHere(q *kvpb.Request, reply func(*kvpb.Response)) {
	id := keys.PartitionID(q.Partition)
	e := &kvpb.Error{Code: kvpb.ErrorCode_PARTITION_NOT_FOUND}
	t := n.tables.load()
	p := t.Partition(id)
	switch {
	case n.isBroken(id):
		e.Code = kvpb.ErrorCode_NODE_UNHEALTHY
		e.Message = fmt.Sprintf("partition %s: the replica on node %s does not open; see the server's log", id, n.config.ID)
	case p == nil && !t.Complete:
		e.Code = kvpb.ErrorCode_NODE_UNHEALTHY
		e.Message = fmt.Sprintf("node %s does not know the partition table yet", n.config.ID)
	case p == nil:
		e.Message = fmt.Sprintf("partition %s does not exist, as far as node %s knows: its keyspace may have been dropped", id, n.config.ID)
	case n.replicaHere(p) != nil:
		e.Code = kvpb.ErrorCode_NOT_LEADER
		e.Message = fmt.Sprintf("partition %s: node %s is about to create its replica; try again", id, n.config.ID)
	default:
		e.Message = fmt.Sprintf("partition %s has no replica on node %s; see the descriptor given", id, n.config.ID)
		e.Partitions = []*clusterpb.Partition{p}
	}
	n.metrics.refused.Inc()
	reply(&kvpb.Response{Id: q.Id, Now: rpc.ToTimestamp(n.config.Clock.Now()), Error: e})
}

// sorting groups the requests of a batch by replica: lists of indexes, and a small open-addressed table of the lists.
type sorting struct {
	groups  []sorted
	next    []int32
	slots   []int32 // 1 + index into groups
	pending []replica.Pending
}

// sorted is the list of one replica's requests.
type sorted struct {
	h           *hosted
	first, last int32
}

var sortings = sync.Pool{New: func() any { return new(sorting) }}

// begin makes room for n requests.
func (s *sorting) begin(n int) {
	slots := 8
	for slots < 2*n {
		slots *= 2
	}
	if cap(s.slots) < slots {
		s.slots = make([]int32, slots)
	}
	s.slots = s.slots[:slots]
	if cap(s.next) < n {
		s.next = make([]int32, n)
	}
	s.next = s.next[:n]
}

// add appends a request to its replica's list.
func (s *sorting) add(h *hosted, index int32) {
	s.next[index] = -1
	mask := uint64(len(s.slots) - 1)
	for at := uint64(h.id) * 0x9e3779b97f4a7c15 >> 32 & mask; ; at = (at + 1) & mask {
		slot := s.slots[at]
		if slot == 0 {
			s.groups = append(s.groups, sorted{h, index, index})
			s.slots[at] = int32(len(s.groups))
			return
		}
		if g := &s.groups[slot-1]; g.h == h {
			s.next[g.last] = index
			g.last = index
			return
		}
	}
}

// maxKeptSorting bounds what is kept for the next batch.
const maxKeptSorting = 4096

func (s *sorting) release() {
	clear(s.slots)
	clear(s.groups)
	clear(s.pending)
	s.groups, s.pending = s.groups[:0], s.pending[:0]
	if cap(s.next) <= maxKeptSorting && cap(s.pending) <= maxKeptSorting {
		sortings.Put(s)
	}
}

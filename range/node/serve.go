package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// route finds the replica that a request is for, or answers the request, or passes it on to be
// answered. own is set if the node has to answer it as a piece of work of its own.
func (n *Node) route(pending config.Pending) (h *hosted.Replica, own bool) {
	q, reply := pending.Request, pending.Reply
	c := command.Of(q)
	switch {
	case c.Dispatch == command.NotKnown:
		n.refuse(q, kvpb.ErrorCode_INVALID_ARGUMENT, "the request has no command that this node "+
			"knows; is the client newer than this server?", reply)
	case q.Admit && c.Dispatch != command.AtTimestamp:
		n.refuse(q, kvpb.ErrorCode_INVALID_ARGUMENT, fmt.Sprintf("a request of the kind %s cannot be "+
			"admitted: only reads of keys and spans of one partition can", c.Name), reply)
	case c == command.MultiGet:
		return nil, true
	case c == command.MergeScan:
		pending.Timing = n.slow.Begin(pending.Arrived)
		n.mergeScan(pending)
	case c == command.SlowRequests:
		reply(n.stampClock(&kvpb.Response{Id: q.Id, Result: &kvpb.Response_SlowRequests{
			SlowRequests: n.slow.List(q.GetSlowRequests())}}))
	case c == command.Now:
		now, trusted := n.config.Clock.Reading()
		if !trusted {
			n.refuse(q, kvpb.ErrorCode_CLOCK_SKEW, fmt.Sprintf("the clock of node %s has just "+
				"been set, or its machine was suspended, and it has not been looked at since",
				n.config.ID), reply)
			return nil, false
		}
		reply(&kvpb.Response{Id: q.Id, Now: wire.ToTimestamp(now),
			Result: &kvpb.Response_NowResult{
				NowResult: &kvpb.NowResponse{Node: uint64(n.config.ID)},
			}})
	default:
		h, e := n.serving(keys.PartitionID(q.Partition))
		if e == nil {
			if h.Split.Campaigning.Load() && n.newChildren.ask(h, pending) {
				return nil, false
			}
			return h, false
		}
		n.metrics.refused.Inc()
		reply(n.stampClock(&kvpb.Response{Id: q.Id, Error: e}))
	}
	return nil, false
}

// serving finds the replica of a partition, or returns why there is none that serves.
func (n *Node) serving(id keys.PartitionID) (*hosted.Replica, *kvpb.Error) {
	h := n.replicas.Get(id)
	var why error
	switch {
	case h == nil:
		if by := n.lifecycle.Merged.SubsumedBy(id); by != nil {
			return nil, n.mergedAway(id, by)
		}
		if why = n.lifecycle.BrokenBy(id); why == nil {
			return nil, n.absent(id)
		}
	default:
		if why = h.Group.Failed(); why == nil {
			return h, nil
		}
	}
	text := strings.TrimPrefix(engine.Explain(why), fmt.Sprintf("partition %s: ", id))
	e := &kvpb.Error{Code: kvpb.ErrorCode_NODE_UNHEALTHY, Message: fmt.Sprintf("the replica of "+
		"partition %s on node %s has failed: %s", id, n.config.ID, text)}
	if storage.IsDamage(why) || errors.Is(why, raftlog.ErrCorrupt) {
		e.Code = kvpb.ErrorCode_REPLICA_DAMAGED
		e.Message = fmt.Sprintf("the replica of partition %s on node %s is damaged: %s", id,
			n.config.ID, text)
	}
	return nil, e
}

// refuse answers a request that did not run. A clock that is known to be wrong is not reported in
// the answer: a session that took the time of a clock that is ahead would be refused by all other
// nodes until their clocks reach it.
func (n *Node) refuse(q *kvpb.Request, code kvpb.ErrorCode, message string,
	reply func(*kvpb.Response)) {
	n.Refuse(q, &kvpb.Error{Code: code, Message: message}, reply)
}

// Refuse implements clocks.Server.
func (n *Node) Refuse(q *kvpb.Request, e *kvpb.Error, reply func(*kvpb.Response)) {
	n.metrics.refused.Inc()
	response := &kvpb.Response{Id: q.Id, Error: e}
	if e.Code != kvpb.ErrorCode_CLOCK_SKEW {
		n.stampClock(response)
	}
	reply(response)
}

// stampClock adds the reading of the node's clock to a response.
func (n *Node) stampClock(response *kvpb.Response) *kvpb.Response {
	now, trusted := n.config.Clock.Reading()
	response.Now, response.ClockUntrusted = wire.ToTimestamp(now), !trusted
	return response
}

// absent returns an error with what this node knows about a partition of which it has no replica.
func (n *Node) absent(id keys.PartitionID) *kvpb.Error {
	e := &kvpb.Error{Code: kvpb.ErrorCode_PARTITION_NOT_FOUND}
	t := n.tables.Load()
	p := t.Partition(id)
	switch {
	case p == nil && !t.Complete:
		e.Code = kvpb.ErrorCode_NODE_UNHEALTHY
		e.Message = fmt.Sprintf("node %s does not know the partition table yet", n.config.ID)
	case p == nil:
		e.Message = fmt.Sprintf("partition %s does not exist, as far as node %s knows: its "+
			"keyspace may have been dropped", id, n.config.ID)
	case n.base.ReplicaHere(p) != nil:
		e.Code = kvpb.ErrorCode_NOT_LEADER
		e.Message = fmt.Sprintf("partition %s: node %s is about to create its replica; try again",
			id, n.config.ID)
	default:
		e.Message = fmt.Sprintf("partition %s has no replica on node %s; see the descriptor given",
			id, n.config.ID)
		e.Partitions = n.covering(p, keys.PartitionSpan(p))
	}
	return e
}

// mergedAway answers a request for a partition that is a part of another one.
func (n *Node) mergedAway(id keys.PartitionID, by *clusterpb.Partition) *kvpb.Error {
	return &kvpb.Error{Code: kvpb.ErrorCode_STALE_EPOCH,
		Message: fmt.Sprintf("partition %s: it was merged, and is a part of partition %d now", id,
			by.GetId()),
		Partitions: n.covering(by, keys.PartitionSpan(by))}
}

package fakeserver

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// closedLag is the distance of the closed timestamp from the leader's clock.
const closedLag = time.Second

// waitStep is the time between two attempts of a read that waits for its timestamp to be closed.
const waitStep = 5 * time.Millisecond

// closedLocked returns the closed timestamp of a node's replica; zero: none is known.
func (n *Node) closedLocked(p *Partition) hlc.Timestamp {
	if n.Closed != nil {
		return n.Closed(p)
	}
	leader := n.cluster.Nodes[p.Leader]
	if leader == nil {
		return n.lastClosed[p.Desc.Id]
	}
	if n.lastClosed == nil {
		n.lastClosed = make(map[uint64]hlc.Timestamp)
	}
	closed := hlc.Timestamp{Wall: leader.Clock.Physical() - int64(closedLag) - int64(n.Lag)}
	n.lastClosed[p.Desc.Id] = hlc.Max(n.lastClosed[p.Desc.Id], closed)
	return n.lastClosed[p.Desc.Id]
}

// replicaReadLocked answers a read that any replica may answer, at a node that does not lead.
func (n *Node) replicaReadLocked(p *Partition, r *kvpb.Request) *kvpb.Response {
	c, closed := n.cluster, n.closedLocked(p)
	at, spans := asked(r)
	need := hlc.Max(wire.FromTimestamp(r.ReplicaRead.AtLeast), hlc.Timestamp{Wall: 1})
	need = hlc.Max(need, at)
	if closed.Less(need) {
		refused := Refusal(kvpb.ErrorCode_NOT_CLOSED, "that is not closed here")
		if !closed.IsZero() {
			refused.Error.Timestamp = wire.ToTimestamp(closed)
		}
		return refused
	}
	reads := closed
	if !at.IsZero() {
		reads = at
	}
	for key, l := range p.Data.Locks {
		if l.Kind == kvpb.Mutation_LOCK || reads.Less(l.Prepared) || !p.Contains(key) {
			continue
		}
		for _, span := range spans {
			if !span.Contains([]byte(key)) {
				continue
			}
			if reads = l.Prepared.Prev(); !at.IsZero() || reads.Less(need) {
				refused := Refusal(kvpb.ErrorCode_NOT_CLOSED, "a lock is in the way")
				refused.Error.Conflict = &kvpb.Conflict{Key: []byte(key),
					Transaction: l.Transaction.Id}
				return refused
			}
		}
	}
	p.Read = hlc.Max(p.Read, closed) // no write may get a timestamp at or below the closed one
	setAt(r, reads)
	answer := c.read(p, n.Clock, r)
	if at.IsZero() {
		setAt(r, hlc.Timestamp{})
	}
	answer.ReadAt = wire.ToTimestamp(reads)
	return answer
}

// asked returns the timestamp and the spans of a read.
func asked(r *kvpb.Request) (at hlc.Timestamp, spans []keys.Span) {
	switch c := r.Command.(type) {
	case *kvpb.Request_Get:
		return wire.FromTimestamp(c.Get.At), []keys.Span{keys.Point(c.Get.Key)}
	case *kvpb.Request_BatchGet:
		for _, key := range c.BatchGet.Keys {
			spans = append(spans, keys.Point(key))
		}
		return wire.FromTimestamp(c.BatchGet.At), spans
	case *kvpb.Request_Scan:
		return wire.FromTimestamp(c.Scan.At), []keys.Span{{Start: c.Scan.Start, End: c.Scan.End}}
	case *kvpb.Request_Count:
		return wire.FromTimestamp(c.Count.At), []keys.Span{{Start: c.Count.Start, End: c.Count.End}}
	case *kvpb.Request_Changes:
		return wire.FromTimestamp(c.Changes.Upto),
			[]keys.Span{{Start: c.Changes.Start, End: c.Changes.End}}
	}
	return at, nil
}

// setAt sets the timestamp of a read.
func setAt(r *kvpb.Request, at hlc.Timestamp) {
	wire := wire.ToTimestamp(at)
	if at.IsZero() {
		wire = nil
	}
	switch c := r.Command.(type) {
	case *kvpb.Request_Get:
		c.Get.At = wire
	case *kvpb.Request_BatchGet:
		c.BatchGet.At = wire
	case *kvpb.Request_Scan:
		c.Scan.At = wire
	case *kvpb.Request_Count:
		c.Count.At = wire
	case *kvpb.Request_Changes:
		c.Changes.Upto = wire
	}
}

// waits tries a read again for as long as the read allows, if this node's replica refused it
// because its timestamp is not closed. waits then sends the answer. It returns false if the given
// answer is final.
func (n *Node) waits(client uint64, r *kvpb.Request, answer *kvpb.Response,
	reply func(*kvpb.Response)) bool {
	wait := time.Duration(r.GetReplicaRead().GetWaitMicros()) * time.Microsecond
	if wait == 0 || answer.GetError().GetCode() != kvpb.ErrorCode_NOT_CLOSED {
		return false
	}
	until := time.Now().Add(wait)
	go func() { // ends with the wait, or with the cluster
		for {
			select {
			case <-time.After(waitStep): // virtual
			case <-n.cluster.closed:
				return
			}
			again := n.serve(client, r)
			if again == nil {
				return
			}
			if again.GetError().GetCode() != kvpb.ErrorCode_NOT_CLOSED || !time.Now().Before(until) {
				again.Id = r.Id
				reply(again)
				return
			}
		}
	}()
	return true
}

// locality returns the location of a node; nil if unknown.
func (n *Node) locality() *clusterpb.Locality {
	if n.Region == "" && n.Zone == "" {
		return nil
	}
	return &clusterpb.Locality{Region: n.Region, Zone: n.Zone}
}

// readTold returns the timestamp at which a read was executed.
func readTold(answer *kvpb.Response) *kvpb.Timestamp {
	switch r := answer.Result.(type) {
	case *kvpb.Response_BatchGet:
		return r.BatchGet.At
	case *kvpb.Response_Scan:
		return r.Scan.At
	case *kvpb.Response_Count:
		return r.Count.At
	case *kvpb.Response_Changes:
		return r.Changes.Resolved
	}
	return answer.ReadAt
}

package fakeserver

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// closedLag is how far what is closed lies behind the leader's clock.
const closedLag = time.Second

// waitStep is how often a read looks that waits for its timestamp to be closed.
const waitStep = 5 * time.Millisecond

// closedLocked is what is closed at a node's replica of a partition; zero: nothing is known to be.
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
	p.Read = hlc.Max(p.Read, closed) // nothing is written at or below what is closed
	setAt(r, reads)
	answer := c.read(p, n.Clock, r)
	if at.IsZero() {
		setAt(r, hlc.Timestamp{})
	}
	answer.ReadAt = wire.ToTimestamp(reads)
	return answer
}

// asked is when a read is to be done, and what it reads.
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

// setAt sets when a read is to be done.
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

// waits answers a read later that this node's replica cannot answer yet, if it is to wait for that.
// It returns false if the answer stands.
func (n *Node) waits(client uint64, r *kvpb.Request, answer *kvpb.Response,
	reply func(*kvpb.Response)) bool {
	wait := time.Duration(r.GetReplicaRead().GetWaitMicros()) * time.Microsecond
	if wait == 0 || answer.GetError().GetCode() != kvpb.ErrorCode_NOT_CLOSED {
		return false
	}
	until := time.Now().Add(wait)
	go func() { // ends with the wait, or the cluster
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

// locality is where a node is; nil if that is not known.
func (n *Node) locality() *clusterpb.Locality {
	if n.Region == "" && n.Zone == "" {
		return nil
	}
	return &clusterpb.Locality{Region: n.Region, Zone: n.Zone}
}

// readTold is when a read was done.
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

package fakeserver

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Here are reads that a leader admits, and another replica answers. The index of an admission is
// the time in nanoseconds at which the leader admitted the read. A replica has applied everything
// older than its Node.Behind.

// admission is the answer of a leader that has executed a read in order to admit it.
func (n *Node) admission(read *kvpb.Response) *kvpb.Response {
	return &kvpb.Response{Admission: &kvpb.Admission{At: readTold(read),
		Index: uint64(time.Now().UnixNano())}}
}

// admittedReadLocked answers a read that a leader has admitted, at a node that does not lead.
func (n *Node) admittedReadLocked(p *Partition, r *kvpb.Request) *kvpb.Response {
	admission := r.ReplicaRead.Admission
	at := wire.FromTimestamp(admission.At)
	asked, spans := asked(r)
	if !asked.IsZero() && asked != at {
		n.cluster.TB.Errorf("a read at %s was admitted at %s", asked, at)
	}
	if time.Now().UnixNano()-int64(n.Behind) < int64(admission.Index) {
		return Refusal(kvpb.ErrorCode_NOT_CLOSED, "that is not applied here")
	}
	if refused := p.lockedBelow(spans, at); refused != nil {
		return refused
	}
	if p.Read.Less(at) {
		n.cluster.TB.Errorf("a read at %s was not admitted: what is read is read up to %s", at, p.Read)
	}
	for _, span := range spans {
		if refused := p.uncertain(span, at, admission.UncertainUntil); refused != nil {
			return refused
		}
	}
	setAt(r, at)
	answer := n.cluster.read(p, n.Clock, r)
	setAt(r, asked)
	if answer.Error == nil {
		answer.ReadAt = admission.At
	}
	return answer
}

// lockedBelow refuses a read if a lock at or below its timestamp is on one of its keys; nil if
// there is no such lock.
func (p *Partition) lockedBelow(spans []keys.Span, at hlc.Timestamp) *kvpb.Response {
	for key, l := range p.Data.Locks {
		if l.Kind == kvpb.Mutation_LOCK || at.Less(l.Prepared) || !p.Contains(key) {
			continue
		}
		for _, span := range spans {
			if span.Contains([]byte(key)) {
				refused := Refusal(kvpb.ErrorCode_NOT_CLOSED, "a lock is in the way")
				refused.Error.Conflict = &kvpb.Conflict{Key: []byte(key),
					Transaction: l.Transaction.Id}
				return refused
			}
		}
	}
	return nil
}

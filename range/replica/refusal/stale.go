package refusal

import (
	"bytes"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// StaleEpoch refuses a request that was routed by another descriptor.
func (r *Refuser) StaleEpoch(q *kvpb.Request, descriptor *clusterpb.Partition) *kvpb.Response {
	response := r.refuse(q, kvpb.ErrorCode_STALE_EPOCH,
		"the request was routed by generation %d, it is at %d", q.GetGeneration(),
		descriptor.GetGeneration())
	if id := keys.PartitionID(descriptor.GetId()); id != r.Partition {
		response.Error.Message = fmt.Sprintf("partition %s: it was merged, and is a part of partition "+
			"%s now", r.Partition, id)
	}
	r.describe(q, descriptor, response.Error)
	return response
}

// Problem refuses a request that is invalid by itself.
func (r *Refuser) Problem(q *kvpb.Request, p *request.Problem) *kvpb.Response {
	response := p.Response(q)
	if p.Code == kvpb.ErrorCode_KEY_OUT_OF_SPAN {
		r.describe(q, r.Descriptor(), response.Error)
	}
	return response
}

// describe adds the present descriptors to a refusal: of this replica's partition, and of those
// that have the keys of the request, as far as this node knows.
func (r *Refuser) describe(q *kvpb.Request, descriptor *clusterpb.Partition, e *kvpb.Error) {
	e.Partitions = r.Node.Covering(descriptor, asked(q, descriptor))
	e.Leader = r.leaderHint()
}

// asked returns a span of internal keys with all that a request reads or writes; the span of the
// partition if the request does not say.
func asked(q *kvpb.Request, descriptor *clusterpb.Partition) keys.Span {
	c := command.Of(q)
	if c.Footprint == nil {
		return keys.PartitionSpan(descriptor)
	}
	f := c.Footprint(q)
	var user keys.Span
	any := false
	add := func(start, end []byte) {
		if !any || bytes.Compare(start, user.Start) < 0 {
			user.Start = start
		}
		if !any || len(user.End) > 0 && (len(end) == 0 || bytes.Compare(end, user.End) > 0) {
			user.End = end
		}
		any = true
	}
	for key := range f.Keys {
		add(key, keys.Next(key))
	}
	for start, end := range f.EachSpan {
		add(start, end)
	}
	if !any || user.Empty() {
		return keys.PartitionSpan(descriptor)
	}
	prefix := keys.PartitionPrefix(descriptor)
	span := keys.Span{Start: append(bytes.Clone(prefix), user.Start...), End: keys.PrefixEnd(prefix)}
	if len(user.End) > 0 {
		span.End = append(bytes.Clone(prefix), user.End...)
	}
	return span
}

package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// WriteBatch writes several keys at one timestamp.
var WriteBatch = register((*kvpb.Request_WriteBatch)(nil), Command{
	Name:     "write_batch",
	Dispatch: InQueue,
	Body:     func(q *kvpb.Request) bool { return q.GetWriteBatch() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		for _, o := range q.GetWriteBatch().GetOperations() {
			needs = request.NeedKey(needs, at.Keyspace, access.Write, o.GetKey())
		}
		return needs
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		operations := q.GetWriteBatch().Operations
		all := make([][]byte, len(operations))
		for i, o := range operations {
			all[i] = o.GetKey()
		}
		return request.Points(all)
	},
	Foreground: always,
	// As with Put.
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *request.Problem) {
		size, p := checkWriteBatch(d, q.GetWriteBatch())
		return Writing{Size: size}, p
	},
	Evaluate: writeBatch,
})

func checkWriteBatch(d *clusterpb.Partition, b *kvpb.WriteBatchRequest) (
	size int, p *request.Problem,
) {
	operations := b.GetOperations()
	switch {
	case len(operations) == 0:
		return 0, request.Invalid("an atomic batch needs at least one operation")
	case len(operations) > request.MaxBatchOperations:
		return 0, request.Invalid("an atomic batch has at most %d operations, this one has %d",
			request.MaxBatchOperations, len(operations))
	}
	seen := make(map[string]struct{}, len(operations))
	written := 0
	for _, o := range operations {
		if p := request.CheckKeyValue(d, o.GetKey(), o.GetValue()); p != nil {
			return 0, p
		}
		if p := request.CheckTTL(o.GetKey(), o.GetTtl(), o.GetDelete()); p != nil {
			return 0, p
		}
		if o.GetDelete() && len(o.GetValue()) > 0 {
			return 0, request.Invalid("key %s: an operation either deletes or writes a value, not both",
				keys.Pretty(o.GetKey()))
		}
		if _, twice := seen[request.Text(o.GetKey())]; twice {
			return 0, request.Invalid("key %s appears twice in an atomic batch",
				keys.Pretty(o.GetKey()))
		}
		seen[request.Text(o.GetKey())] = struct{}{}
		written += len(o.GetKey()) + len(o.GetValue())
	}
	if written > request.MaxBatchBytes {
		return 0,
			request.Invalid("an atomic batch has at most %d bytes of keys and values, this one has %d",
				request.MaxBatchBytes, written)
	}
	return written + len(operations)*request.WriteOverhead, nil
}

// writeBatch writes several keys at one timestamp. Every operation writes a version, even the
// deletion of an absent key, so that the first key tells a retry whether the batch was written.
func writeBatch(e *Evaluation, q *kvpb.Request) error {
	for i, o := range q.GetWriteBatch().Operations {
		p, err := e.PriorOfBlind(o.Key)
		if err != nil {
			return err
		}
		if i == 0 {
			own, err := e.Replayed(o.Key, &p)
			if err != nil {
				return err
			}
			if own.Found {
				e.Duplicate(writeBatchResponse(nil, q, own.Timestamp), own.Sequence)
				return nil
			}
		}
		op := WriteOp{Key: o.Key, Value: o.Value, Tombstone: o.Delete, WasLive: p.HasValue(),
			Prior: p.Timestamp}
		if !o.Delete {
			op.Lifetime = e.LifetimeOf(o.Ttl)
		}
		e.Ops = append(e.Ops, op)
	}
	e.Write(writeBatchResponse)
	return nil
}

func writeBatchResponse(_ *Result, q *kvpb.Request, version hlc.Timestamp) *kvpb.Response {
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_WriteBatch{
		WriteBatch: &kvpb.WriteBatchResponse{Version: wire.ToTimestamp(version)}}}
}

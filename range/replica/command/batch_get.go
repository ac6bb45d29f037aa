package command

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// BatchGet reads keys of one partition at one timestamp.
var BatchGet = register((*kvpb.Request_BatchGet)(nil), Command{
	Name:       "batch_get",
	Dispatch:   AtTimestamp,
	Admissible: true,
	Body:       func(q *kvpb.Request) bool { return q.GetBatchGet() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedKeys(needs, at.Keyspace, access.Read, q.GetBatchGet().GetKeys())
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Points(q.GetBatchGet().Keys)
	},
	Named:      func(q *kvpb.Request) int64 { return wall(q.GetBatchGet().GetAt()) },
	Foreground: always,
	CheckRead:  checkBatchGet,
	Read:       batchGet,
})

func checkBatchGet(d *clusterpb.Partition, q *kvpb.Request) (r Reading, p *request.Problem) {
	c := q.GetBatchGet()
	r.At, r.Context = wire.FromTimestamp(c.GetAt()), c.GetContext()
	if n := len(c.GetKeys()); n > request.MaxPageRows {
		return r, request.Invalid("a batch get has at most %d keys, this one has %d",
			request.MaxPageRows, n)
	}
	for _, key := range c.GetKeys() {
		if p := request.CheckKey(d, key); p != nil {
			return r, p
		}
	}
	return r, nil
}

func batchGet(v *View, q *kvpb.Request) (*kvpb.Response, error) {
	c := q.GetBatchGet()
	m := &kvpb.BatchGetResponse{At: wire.ToTimestamp(v.At),
		Values: make([]*kvpb.GetResponse, len(c.Keys))}
	values := make([]kvpb.GetResponse, len(c.Keys))
	getter, err := mvcc.NewGetter(v.State)
	if err != nil {
		return nil, err
	}
	defer getter.Close()
	var internalKey []byte
	size := 0
	for i, key := range c.Keys {
		internalKey = keys.AppendInternalKey(internalKey[:0], v.Descriptor, key)
		version, found, err := getter.GetUncertain(internalKey, v.At, v.Uncertain)
		if err != nil {
			return nil, err
		}
		v.see(version, found)
		m.Values[i] = &values[i]
		if !isValue(version, found) {
			continue
		}
		if size += len(version.Value); size > request.MaxBatchBytes {
			return request.Invalid(
				"a batch get returns at most %d bytes; the first %d of its %d keys have more",
				request.MaxBatchBytes, i+1, len(c.Keys)).Response(q), nil
		}
		values[i].Found, values[i].Value = true, version.Value
		values[i].Version = wire.ToTimestamp(version.Timestamp)
		values[i].Expires = uint64(version.Expires)
	}
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_BatchGet{BatchGet: m}}, nil
}

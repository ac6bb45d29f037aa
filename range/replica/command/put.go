package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Put writes a value, whatever was there.
var Put = register((*kvpb.Request_Put)(nil), Command{
	Name:     "put",
	Dispatch: InQueue,
	Body:     func(q *kvpb.Request) bool { return q.GetPut() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedKey(needs, at.Keyspace, access.Write, q.GetPut().GetKey())
	},
	Footprint:  func(q *kvpb.Request) request.Footprint { return request.Point(q.GetPut().Key) },
	Foreground: always,
	// A put always writes, except when no disk has room for it.
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *request.Problem) {
		c := q.GetPut()
		p := request.CheckKeyValue(d, c.GetKey(), c.GetValue())
		if p == nil {
			p = request.CheckTTL(c.GetKey(), c.GetTtl(), false)
		}
		return Writing{Size: len(c.GetKey()) + len(c.GetValue())}, p
	},
	Evaluate: put,
})

func put(e *Evaluation, q *kvpb.Request) error {
	c := q.GetPut()
	p, err := e.PriorOfBlind(c.Key)
	if err != nil {
		return err
	}
	own, err := e.Replayed(c.Key, &p)
	if err != nil {
		return err
	}
	if own.Found {
		e.Duplicate(putResponse(nil, q, own.Timestamp), own.Sequence)
		return nil
	}
	e.Ops = append(e.Ops, WriteOp{Key: c.Key, Value: c.Value, Lifetime: e.LifetimeOf(c.Ttl),
		WasLive: p.HasValue(), Prior: p.Timestamp})
	e.Write(putResponse)
	return nil
}

// putResponse makes a response in one allocation.
func putResponse(_ *Result, q *kvpb.Request, version hlc.Timestamp) *kvpb.Response {
	m := &struct {
		response kvpb.Response
		result   kvpb.Response_Put
		put      kvpb.PutResponse
		version  kvpb.Timestamp
	}{}
	m.response.Id = q.Id
	m.response.Result = &m.result
	m.result.Put = &m.put
	m.put.Version = &m.version
	SetTimestamp(&m.version, version)
	return &m.response
}

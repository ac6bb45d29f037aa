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

// Increment adds to the number that a key holds.
var Increment = register((*kvpb.Request_Increment)(nil), Command{
	Name:     "increment",
	Dispatch: InQueue,
	Body:     func(q *kvpb.Request) bool { return q.GetIncrement() != nil },
	// The answer reveals the present value.
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		key := q.GetIncrement().GetKey()
		needs = request.NeedKey(needs, at.Keyspace, access.Read, key)
		return request.NeedKey(needs, at.Keyspace, access.Write, key)
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Point(q.GetIncrement().Key)
	},
	Foreground:   always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *request.Problem) {
		key := q.GetIncrement().GetKey()
		p := request.CheckKey(d, key)
		if p == nil {
			p = request.CheckTTL(key, q.GetIncrement().GetTtl(), false)
		}
		return Writing{Size: len(key) + keys.MaxNumberLength}, p
	},
	Evaluate: increment,
})

// increment writes the sum. A retry finds it in the version that its first attempt wrote.
func increment(e *Evaluation, q *kvpb.Request) error {
	c := q.GetIncrement()
	p, err := e.Prior(c.Key)
	if err != nil {
		return err
	}
	own, err := e.Replayed(c.Key, &p)
	if err != nil {
		return err
	}
	if own.Found {
		sum, err := keys.ParseNumber(own.Value)
		if err != nil {
			return err
		}
		e.told.number = sum
		e.Duplicate(incrementResponse(&e.Result, q, own.Timestamp), own.Sequence)
		return nil
	}
	e.HoldSeen(&p) // the sum reveals the version before
	sum, err := keys.AddNumber(p.Value, e.Live(c.Key, &p), c.By)
	if err != nil {
		refusal := request.Refuse(q, kvpb.ErrorCode_INVALID_ARGUMENT, "%v", err)
		e.NothingDone(refusal, p.Sequence)
		return nil
	}
	e.told.number = sum
	e.Ops = append(e.Ops, WriteOp{Key: c.Key, Value: keys.FormatNumber(sum),
		Lifetime: e.LifetimeOf(c.Ttl), WasLive: p.HasValue(), Prior: p.Timestamp})
	e.Write(incrementResponse)
	return nil
}

func incrementResponse(r *Result, q *kvpb.Request, version hlc.Timestamp) *kvpb.Response {
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Increment{
		Increment: &kvpb.IncrementResponse{Value: r.told.number, Version: wire.ToTimestamp(version)}}}
}

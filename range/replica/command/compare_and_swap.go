package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// CompareAndSwap writes if the key is as expected.
var CompareAndSwap = register((*kvpb.Request_CompareAndSwap)(nil), Command{
	Name:     "compare_and_swap",
	Dispatch: InQueue,
	Body:     func(q *kvpb.Request) bool { return q.GetCompareAndSwap() != nil },
	// The answer reveals the present version.
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		key := q.GetCompareAndSwap().GetKey()
		needs = request.NeedKey(needs, at.Keyspace, access.Read, key)
		return request.NeedKey(needs, at.Keyspace, access.Write, key)
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Point(q.GetCompareAndSwap().Key)
	},
	Foreground:   always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *request.Problem) {
		c := q.GetCompareAndSwap()
		return Writing{Size: len(c.GetKey()) + len(c.GetNewValue())}, checkCompareAndSwap(d, c)
	},
	Evaluate: compareAndSwap,
})

func checkCompareAndSwap(d *clusterpb.Partition, c *kvpb.CompareAndSwapRequest) *request.Problem {
	if p := request.CheckKeyValue(d, c.GetKey(), c.GetNewValue()); p != nil {
		return p
	}
	if p := request.CheckTTL(c.GetKey(), c.GetTtl(), c.GetDelete()); p != nil {
		return p
	}
	switch e := c.GetExpected().(type) {
	case *kvpb.CompareAndSwapRequest_Absent:
		if !e.Absent {
			return request.Invalid("key %s: `absent` can only be expected to be true",
				keys.Pretty(c.GetKey()))
		}
	case *kvpb.CompareAndSwapRequest_Version:
		if e.Version == nil {
			return request.Invalid("key %s: the expected version is empty", keys.Pretty(c.GetKey()))
		}
	case *kvpb.CompareAndSwapRequest_Value:
	default:
		return request.Invalid(
			"key %s: a compare-and-swap needs an expectation: absent, a value, or a version",
			keys.Pretty(c.GetKey()))
	}
	if c.GetDelete() && len(c.GetNewValue()) > 0 {
		return request.Invalid(
			"key %s: a compare-and-swap either deletes or writes a new value, not both",
			keys.Pretty(c.GetKey()))
	}
	return nil
}

// compareAndSwap writes if the key is as expected. A failure is an answer about what was read: it
// waits for the version that decided it, if that version is pending.
func compareAndSwap(e *Evaluation, q *kvpb.Request) error {
	c := q.GetCompareAndSwap()
	p, err := e.Prior(c.Key)
	if err != nil {
		return err
	}
	// A first attempt that succeeded would make the expectation false: look for it before comparing.
	own, err := e.Replayed(c.Key, &p)
	if err != nil {
		return err
	}
	if own.Found {
		e.Duplicate(swappedResponse(nil, q, own.Timestamp), own.Sequence)
		return nil
	}
	e.HoldSeen(&p)
	live := e.Live(c.Key, &p)
	if !asExpected(c, &p, live) {
		m := &kvpb.CompareAndSwapResponse{Found: live}
		if m.Found {
			m.Current, m.CurrentVersion = bytes.Clone(p.Value), wire.ToTimestamp(p.Timestamp)
			m.CurrentExpires = uint64(p.Expires)
		}
		e.NothingDone(&kvpb.Response{Id: q.Id,
			Result: &kvpb.Response_CompareAndSwap{CompareAndSwap: m}},
			p.Sequence)
		return nil
	}
	op := WriteOp{Key: c.Key, Value: c.NewValue, Tombstone: c.Delete,
		WasLive: p.HasValue(), Prior: p.Timestamp}
	if !c.Delete {
		op.Lifetime = e.LifetimeOf(c.Ttl)
	}
	e.Ops = append(e.Ops, op)
	e.Write(swappedResponse)
	return nil
}

// asExpected compares the key with the expectation. A key that was deleted, or whose value has
// expired, is absent: neither a tombstone nor an expired version is any request's expected version.
func asExpected(c *kvpb.CompareAndSwapRequest, p *Prior, live bool) bool {
	switch x := c.Expected.(type) {
	case *kvpb.CompareAndSwapRequest_Absent:
		return !live
	case *kvpb.CompareAndSwapRequest_Value:
		return live && bytes.Equal(p.Value, x.Value)
	case *kvpb.CompareAndSwapRequest_Version:
		return live && p.Timestamp == wire.FromTimestamp(x.Version)
	}
	return false
}

// swappedResponse makes a response in one allocation.
func swappedResponse(_ *Result, q *kvpb.Request, version hlc.Timestamp) *kvpb.Response {
	m := &struct {
		response kvpb.Response
		result   kvpb.Response_CompareAndSwap
		swap     kvpb.CompareAndSwapResponse
		version  kvpb.Timestamp
	}{}
	m.response.Id = q.Id
	m.response.Result = &m.result
	m.result.CompareAndSwap = &m.swap
	m.swap.Swapped = true
	m.swap.Version = &m.version
	SetTimestamp(&m.version, version)
	return &m.response
}

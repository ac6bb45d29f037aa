package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Delete removes a value, and says whether there was one.
var Delete = register((*kvpb.Request_Delete)(nil), Command{
	Name:     "delete",
	Dispatch: InQueue,
	Body:     func(q *kvpb.Request) bool { return q.GetDelete() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedKey(needs, at.Keyspace, access.Write, q.GetDelete().GetKey())
	},
	Footprint:    func(q *kvpb.Request) request.Footprint { return request.Point(q.GetDelete().Key) },
	Foreground:   always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *request.Problem) {
		key := q.GetDelete().GetKey()
		return Writing{Size: len(key)}, request.CheckKey(d, key)
	},
	Evaluate: remove,
})

// remove writes a tombstone if the key has any version, even if that is a tombstone: the new one
// carries the request id. A key without any version needs no record: if a retry finds a version, it
// was written later, and the retry deletes it. (An earlier attempt that is evaluated after its
// retry was answered this way is not carried out: see NothingDone.)
func remove(e *Evaluation, q *kvpb.Request) error {
	key := q.GetDelete().Key
	p, err := e.PriorWithoutValue(key)
	if err != nil {
		return err
	}
	if !p.Found {
		e.NothingDone(deleteResponse(&e.Result, q, hlc.Timestamp{}), 0)
		return nil
	}
	own, err := e.Replayed(key, &p)
	if err != nil {
		return err
	}
	if own.Found {
		if e.told.existed, err = e.ExistedBefore(key, own); err != nil {
			return err
		}
		e.Duplicate(deleteResponse(&e.Result, q, own.Timestamp), own.Sequence)
		return nil
	}
	e.HoldSeen(&p) // the answer reveals it
	e.told.existed = e.Live(key, &p)
	e.Ops = append(e.Ops, WriteOp{Key: key, Tombstone: true, WasLive: p.HasValue(),
		Prior: p.Timestamp})
	e.Write(deleteResponse)
	return nil
}

func deleteResponse(r *Result, q *kvpb.Request, version hlc.Timestamp) *kvpb.Response {
	m := &kvpb.DeleteResponse{Existed: r.told.existed}
	if !version.IsZero() {
		m.Version = wire.ToTimestamp(version)
	}
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Delete{Delete: m}}
}

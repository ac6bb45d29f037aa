package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Count counts the keys of a span that have a value, a page of them.
var Count = register((*kvpb.Request_Count)(nil), Command{
	Name:       "count",
	Way:        AtTimestamp,
	Admissible: true,
	Body:       func(q *kvpb.Request) bool { return q.GetCount() != nil },
	Permissions: func(at Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
		c := q.GetCount()
		return needSpan(needs, at.Keyspace, access.Read, c.GetStart(), c.GetEnd())
	},
	Footprint:  func(q *kvpb.Request) Footprint { return span(q.GetCount().Start, q.GetCount().End) },
	Named:      func(q *kvpb.Request) int64 { return wall(q.GetCount().GetAt()) },
	Foreground: always,
	CheckRead: func(d *clusterpb.Partition, q *kvpb.Request) (r Reading, p *Problem) {
		c := q.GetCount()
		r.At, r.UncertainUntil = wire.FromTimestamp(c.GetAt()), wire.FromTimestamp(c.GetUncertainUntil())
		r.Context = c.GetContext()
		return r, checkSpan(d, c.GetStart(), c.GetEnd())
	},
	Read: count,
})

func count(v *View, q *kvpb.Request) (*kvpb.Response, error) {
	c := q.GetCount()
	m := &kvpb.CountResponse{At: wire.ToTimestamp(v.At)}
	response := &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Count{Count: m}}
	span := InternalSpan(v.Descriptor, c.Start, c.End)
	if span.Empty() {
		return response, nil
	}
	result, err := mvcc.Count(v.State, mvcc.ScanOptions{
		Span: span, At: v.At, Uncertain: v.Uncertain, KeysOnly: true,
		MaxRows: paged(c.MaxRows, defaultCountRows, maxCountRows), MaxSkipped: MaxSkipped,
		Vacant: v.Vacant,
	})
	if err != nil {
		return nil, err
	}
	v.Seen = result.CommitWaitUntil
	m.Count = uint64(result.Rows)
	if m.More = result.More; m.More {
		m.Resume = bytes.Clone(keys.UserKey(v.Descriptor, result.Resume))
	}
	return response, nil
}

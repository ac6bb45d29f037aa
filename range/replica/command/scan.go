package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Scan reads a page of a span.
var Scan = register((*kvpb.Request_Scan)(nil), Command{
	Name:       "scan",
	Dispatch:   AtTimestamp,
	Admissible: true,
	Body:       func(q *kvpb.Request) bool { return q.GetScan() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		c := q.GetScan()
		return request.NeedSpan(needs, at.Keyspace, access.Read, c.GetStart(), c.GetEnd())
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Span(q.GetScan().Start, q.GetScan().End)
	},
	Named:      func(q *kvpb.Request) int64 { return wall(q.GetScan().GetAt()) },
	Foreground: always,
	CheckRead:  checkScan,
	Read:       scan,
})

func checkScan(d *clusterpb.Partition, q *kvpb.Request) (r Reading, p *request.Problem) {
	c := q.GetScan()
	r.At, r.UncertainUntil = wire.FromTimestamp(c.GetAt()), wire.FromTimestamp(c.GetUncertainUntil())
	r.Context = c.GetContext()
	return r, request.CheckSpan(d, c.GetStart(), c.GetEnd())
}

// scan reads a page. The caller releases its rows when it has been answered.
func scan(v *View, q *kvpb.Request) (*kvpb.Response, error) {
	c := q.GetScan()
	m := &kvpb.ScanResponse{At: wire.ToTimestamp(v.At)}
	response := &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Scan{Scan: m}}
	span := request.InternalSpan(v.Descriptor, c.Start, c.End)
	if span.Empty() {
		return response, nil
	}
	rows := NewRows()
	result, err := mvcc.Scan(v.State, mvcc.ScanOptions{
		Span: span, At: v.At, Uncertain: v.Uncertain,
		Reverse: c.Reverse, KeysOnly: c.KeysOnly, MaxRows: request.PageRows(c.MaxRows),
		MaxBytes:   request.PageBytes(c.MaxBytes),
		MaxSkipped: request.MaxSkipped, Vacant: v.Vacant,
	}, func(key []byte, version mvcc.Version) error {
		rows = wire.AppendRow(rows, keys.UserKey(v.Descriptor, key), version.Value, version.Timestamp,
			version.Expires)
		return nil
	})
	if err != nil {
		ReleaseRows(rows)
		return nil, err
	}
	v.Seen = result.CommitWaitUntil
	m.Rows = rows
	if m.More = result.More; m.More {
		m.Resume = bytes.Clone(keys.UserKey(v.Descriptor, result.Resume))
	}
	return response, nil
}

// Count counts the keys with a value in a page of a span.
var Count = register((*kvpb.Request_Count)(nil), Command{
	Name:       "count",
	Dispatch:   AtTimestamp,
	Admissible: true,
	Body:       func(q *kvpb.Request) bool { return q.GetCount() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		c := q.GetCount()
		return request.NeedSpan(needs, at.Keyspace, access.Read, c.GetStart(), c.GetEnd())
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Span(q.GetCount().Start, q.GetCount().End)
	},
	Named:      func(q *kvpb.Request) int64 { return wall(q.GetCount().GetAt()) },
	Foreground: always,
	CheckRead: func(d *clusterpb.Partition, q *kvpb.Request) (r Reading, p *request.Problem) {
		c := q.GetCount()
		r.At, r.UncertainUntil = wire.FromTimestamp(c.GetAt()),
			wire.FromTimestamp(c.GetUncertainUntil())
		r.Context = c.GetContext()
		return r, request.CheckSpan(d, c.GetStart(), c.GetEnd())
	},
	Read: count,
})

func count(v *View, q *kvpb.Request) (*kvpb.Response, error) {
	c := q.GetCount()
	m := &kvpb.CountResponse{At: wire.ToTimestamp(v.At)}
	response := &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Count{Count: m}}
	span := request.InternalSpan(v.Descriptor, c.Start, c.End)
	if span.Empty() {
		return response, nil
	}
	result, err := mvcc.Count(v.State, mvcc.ScanOptions{
		Span: span, At: v.At, Uncertain: v.Uncertain, KeysOnly: true,
		MaxRows: request.CountRows(c.MaxRows), MaxSkipped: request.MaxSkipped,
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

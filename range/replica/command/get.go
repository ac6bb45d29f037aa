package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Get reads one key.
var Get = register((*kvpb.Request_Get)(nil), Command{
	Name:         "get",
	Dispatch:     AtTimestamp,
	Admissible:   true,
	BelowPending: true,
	Body:         func(q *kvpb.Request) bool { return q.GetGet() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedKey(needs, at.Keyspace, access.Read, q.GetGet().GetKey())
	},
	Footprint:  func(q *kvpb.Request) request.Footprint { return request.Point(q.GetGet().Key) },
	Named:      func(q *kvpb.Request) int64 { return wall(q.GetGet().GetAt()) },
	Foreground: always,
	CheckRead: func(d *clusterpb.Partition, q *kvpb.Request) (Reading, *request.Problem) {
		c := q.GetGet()
		return Reading{At: wire.FromTimestamp(c.GetAt()), Context: c.GetContext()},
			request.CheckKey(d, c.GetKey())
	},
	Read: get,
})

func get(v *View, q *kvpb.Request) (*kvpb.Response, error) {
	c := q.GetGet()
	version, found, err := mvcc.GetUncertain(v.State, keys.InternalKey(v.Descriptor, c.Key), v.At,
		v.Uncertain)
	if err != nil {
		return nil, err
	}
	v.see(version, found)
	response, m, ts := getResponse(q.Id)
	if isValue(version, found) {
		m.Found, m.Value, m.Version = true, version.Value, ts
		SetTimestamp(ts, version.Timestamp)
		m.Expires = uint64(version.Expires)
	}
	if c.Context != nil {
		m.At = wire.ToTimestamp(v.At)
	}
	return response, nil
}

// getResponse makes a response in one allocation, including its timestamp.
func getResponse(id uint64) (*kvpb.Response, *kvpb.GetResponse, *kvpb.Timestamp) {
	m := &struct {
		response kvpb.Response
		result   kvpb.Response_Get
		get      kvpb.GetResponse
		version  kvpb.Timestamp
		now      kvpb.Timestamp
	}{}
	m.response.Id = id
	m.response.Result = &m.result
	m.response.Now = &m.now
	m.result.Get = &m.get
	return &m.response, &m.get, &m.version
}

// SetTimestamp fills in a message.
func SetTimestamp(to *kvpb.Timestamp, t hlc.Timestamp) {
	to.Wall, to.Logical = uint64(t.Wall), t.Logical
}

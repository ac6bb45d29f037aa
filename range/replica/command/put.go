package command

import (
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Put writes a value, whatever was there.
var Put = register((*kvpb.Request_Put)(nil), Command{
	Name:       "put",
	Way:        InQueue,
	Body:       func(q *kvpb.Request) bool { return q.GetPut() != nil },
	Footprint:  func(q *kvpb.Request) Footprint { return point(q.GetPut().Key) },
	Foreground: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *Problem) {
		c := q.GetPut()
		return Writing{Size: len(c.GetKey()) + len(c.GetValue())}, checkKeyValue(d, c.GetKey(), c.GetValue())
	},
})

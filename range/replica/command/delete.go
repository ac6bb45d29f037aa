package command

import (
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Delete removes a value, and says whether there was one.
var Delete = register((*kvpb.Request_Delete)(nil), Command{
	Name:         "delete",
	Way:          InQueue,
	Body:         func(q *kvpb.Request) bool { return q.GetDelete() != nil },
	Footprint:    func(q *kvpb.Request) Footprint { return point(q.GetDelete().Key) },
	Foreground:   always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *Problem) {
		key := q.GetDelete().GetKey()
		return Writing{Size: len(key)}, checkKey(d, key)
	},
})

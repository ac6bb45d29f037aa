package command

import (
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// DeleteRange deletes the keys of a span that have a value, up to a page of them, at one timestamp.
var DeleteRange = register((*kvpb.Request_DeleteRange)(nil), Command{
	Name: "delete_range",
	Way:  InQueue,
	Body: func(q *kvpb.Request) bool { return q.GetDeleteRange() != nil },
	Footprint: func(q *kvpb.Request) Footprint {
		return span(q.GetDeleteRange().Start, q.GetDeleteRange().End)
	},
	Foreground:   always,
	Alone:        always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *Problem) {
		c := q.GetDeleteRange()
		return Writing{}, checkSpan(d, c.GetStart(), c.GetEnd())
	},
})

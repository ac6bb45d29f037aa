package command

import (
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Push asks a transaction's coordinator to abort it, to keep it above a timestamp, or how it stands.
var Push = register((*kvpb.Request_Push)(nil), Command{
	Name:          "push",
	Way:           InQueue,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetPush() != nil },
	Footprint:     func(q *kvpb.Request) Footprint { return point(q.GetPush().GetPushee().GetAnchor()) },
	Named:         func(q *kvpb.Request) int64 { return wall(q.GetPush().GetAbove()) },
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *Problem) {
		push, err := txn.ParsePush(q.GetPush())
		if err != nil {
			return w, Invalid("%v", err)
		}
		w.Transaction = &Transaction{Info: push.Pushee, Push: push}
		w.Size = LockOverhead + len(push.Pushee.Anchor) + len(push.Wanted.Key)
		return w, checkAnchor(d, push.Pushee)
	},
})

package command

import (
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Resolve ends the locks of decided transactions.
var Resolve = register((*kvpb.Request_Resolve)(nil), Command{
	Name:          "resolve",
	Way:           InQueue,
	Transactional: true,
	EndsLocks:     true,
	Body:          func(q *kvpb.Request) bool { return q.GetResolve() != nil },
	Named: func(q *kvpb.Request) (latest int64) {
		for _, x := range q.GetResolve().GetResolutions() {
			latest = max(latest, wall(x.GetStatus().GetTimestamp()))
		}
		return latest
	},
	CheckWrite: checkResolve,
})

func checkResolve(_ *clusterpb.Partition, q *kvpb.Request) (w Writing, p *Problem) {
	resolutions := q.GetResolve().GetResolutions()
	if n := len(resolutions); n > MaxResolutions {
		return w, Invalid("a resolve names at most %d transactions, this one has %d", MaxResolutions, n)
	}
	for _, x := range resolutions {
		id, err := txn.ParseID(x.GetTransaction())
		if err != nil {
			return w, Invalid("resolve: %v", err)
		}
		ts := rpc.FromTimestamp(x.GetStatus().GetTimestamp())
		switch x.GetStatus().GetState() {
		case kvpb.TransactionState_ABORTED:
		case kvpb.TransactionState_COMMITTED:
			if ts.IsZero() {
				return w, Invalid("resolve: transaction %s is committed and has no timestamp", id)
			}
		default:
			return w, Invalid("resolve: transaction %s is not decided", id)
		}
	}
	w.Transaction = &Transaction{}
	return w, nil
}

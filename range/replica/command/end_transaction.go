package command

import (
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// EndTransaction commits or aborts a transaction at its record.
var EndTransaction = register((*kvpb.Request_EndTransaction)(nil), Command{
	Name:          "end_transaction",
	Way:           InQueue,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetEndTransaction() != nil },
	Footprint: func(q *kvpb.Request) Footprint {
		return point(q.GetEndTransaction().GetTransaction().GetAnchor())
	},
	Named: func(q *kvpb.Request) int64 { return wall(q.GetEndTransaction().GetCommitTimestamp()) },
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *Problem) {
		end, err := txn.ParseEnd(q.GetEndTransaction())
		if err != nil {
			return w, Invalid("ending a transaction: %v", err)
		}
		w.Transaction = &Transaction{Info: end.Transaction, End: end}
		w.Size = LockOverhead + len(end.Transaction.Anchor)
		for _, p := range end.Participants {
			w.Size += len(p.Key) + 8
		}
		return w, checkAnchor(d, end.Transaction)
	},
})

package command

import (
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Heartbeat tells a transaction's coordinator that its client lives. It counts also if no caller
// waits for the answer.
var Heartbeat = register((*kvpb.Request_HeartbeatTransaction)(nil), Command{
	Name:          "heartbeat_transaction",
	Way:           InQueue,
	Transactional: true,
	Late:          true,
	Body:          func(q *kvpb.Request) bool { return q.GetHeartbeatTransaction() != nil },
	Footprint: func(q *kvpb.Request) Footprint {
		return point(q.GetHeartbeatTransaction().GetTransaction().GetAnchor())
	},
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *Problem) {
		beat, err := txn.ParseHeartbeat(q.GetHeartbeatTransaction())
		if err != nil {
			return w, Invalid("%v", err)
		}
		w.Transaction = &Transaction{Info: beat.Transaction, Heartbeat: beat}
		w.Size = LockOverhead + len(beat.Transaction.Anchor)
		return w, checkAnchor(d, beat.Transaction)
	},
})

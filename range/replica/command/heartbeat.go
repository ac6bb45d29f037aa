package command

import (
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/access"
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
	Permissions: func(_ Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
		return needAnchor(needs, q.GetHeartbeatTransaction().GetTransaction())
	},
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
	Evaluate: heartbeat,
})

func heartbeat(e *Evaluation, q *kvpb.Request) error {
	of := e.Transaction.Info
	if e.Coordination.Future(of.Started) {
		e.Refuse(fromTheFuture(e.ID(), q, of.Started))
		return nil
	}
	record, sequence, err := e.recordOf(of)
	if err != nil {
		return err
	}
	wanted := false
	e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
		wanted = locks.Coordinated.Wanted(of.ID)
	})
	d := txn.DecideHeartbeat(record, e.Transaction.Heartbeat, e.Coordination.Present())
	e.Decide(q, record, sequence, d, func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_HeartbeatTransaction{
			HeartbeatTransaction: &kvpb.HeartbeatTransactionResponse{Status: s, Wanted: wanted}}}
	})
	return nil
}

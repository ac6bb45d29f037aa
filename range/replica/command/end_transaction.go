package command

import (
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
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
	Permissions:   endPermissions,
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
			w.Size += len(p.First) + len(p.Last) + 16
		}
		return w, checkAnchor(d, end.Transaction)
	},
	Evaluate: endTransaction,
})

func endTransaction(e *Evaluation, q *kvpb.Request) error {
	end := e.Transaction.End
	of := end.Transaction
	if e.refusedTimes(q, end.Timestamp, of.Started) {
		return nil
	}
	record, sequence, err := e.recordOf(of)
	if err != nil {
		return err
	}
	present := e.Coordination.Present()
	if end.Requested {
		e.Coordination.Locks(func(locks *concurrency.Manager, held bool) {
			present.Locked = held && locks.Holds(&of)
		})
	}
	d := txn.DecideEnd(record, end, present)
	pushed := d.Refused != nil && d.Refused.Code == kvpb.ErrorCode_TRANSACTION_PUSHED
	if aborted, hold := end.Requested && d.Record != nil,
		pushed && q.GetEndTransaction().GetHoldTimestamp(); aborted || hold {
		e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
			if aborted {
				locks.Coordinated.RememberAborted(of)
			}
			if hold {
				locks.Coordinated.HoldTimestamp(of.ID, e.Coordination.Now())
			}
		})
	}
	e.Decide(q, record, sequence, d, func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_EndTransaction{
			EndTransaction: &kvpb.EndTransactionResponse{Status: s, Unknown: d.Unknown}}}
	})
	return nil
}

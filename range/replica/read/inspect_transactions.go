package read

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

const (
	// defaultInspected and maxInspected bound how many transactions one inspection shows.
	defaultInspected = 100
	maxInspected     = 10_000
)

// InspectTransactions shows the transactions that have locks here, those with the oldest locks
// first, and the requests that wait for them. Only the leader knows; the answer is for operators,
// so no leadership is proved.
func (r *Reader) InspectTransactions(q *kvpb.Request,
	address func(client uint64) string) *kvpb.Response {
	only := q.GetInspectTransactions().GetTransaction()
	most := defaultInspected
	if n := q.GetInspectTransactions().GetMax(); n != 0 {
		most = int(min(n, maxInspected))
	}
	m := &kvpb.InspectTransactionsResponse{}
	var anchors []txn.Info
	now, physical := time.Now(), r.Node.Clock.Physical()
	r.Mu.Lock()
	if !r.Mu.Leadership.Serving() {
		r.Mu.Unlock()
		return r.Refuse.NotLeader(q)
	}
	r.Mu.Locks.EachTransaction(func(x *concurrency.Transaction) bool {
		if len(only) > 0 && !bytes.Equal(only, x.ID[:]) {
			return true
		}
		m.Transactions = append(m.Transactions, r.Mu.Locks.Describe(x, now, physical))
		anchors = append(anchors, x.Info)
		return true
	})
	r.Mu.Unlock()
	if len(only) > 0 && len(anchors) == 0 {
		aborted, err := r.requestedAbort(only)
		switch {
		case err != nil:
			return r.Refuse.ReadError(q, err)
		case aborted != nil:
			m.Transactions = append(m.Transactions, aborted)
		}
		return &kvpb.Response{Id: q.Id,
			Result: &kvpb.Response_InspectTransactions{InspectTransactions: m}}
	}
	order := make([]int, len(anchors))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := m.Transactions[a], m.Transactions[b]
		return cmp.Or(cmp.Compare(y.OldestMicros, x.OldestMicros), bytes.Compare(x.Transaction.Id,
			y.Transaction.Id))
	})
	if len(order) > most {
		order, m.More = order[:most], true
	}
	shown := make([]*kvpb.LiveTransaction, len(order))
	d := r.Descriptor()
	for i, at := range order {
		shown[i] = m.Transactions[at]
		of := anchors[at]
		if uint32(of.Keyspace) != d.GetKeyspace() || !keys.PartitionContains(d, of.Anchor) {
			continue
		}
		// In a hash keyspace the anchor may lie in another partition; then no record is found here.
		record, err := command.StoredRecord(r.State, txn.RecordKey(keys.InternalKey(d, of.Anchor),
			of.ID))
		if err != nil {
			return r.Refuse.ReadError(q, err)
		}
		if record != nil {
			shown[i].Record = record.Status()
			shown[i].IdleMicros = uint64(record.Idle.Microseconds())
		}
	}
	for _, live := range shown {
		live.ClientAddress = address(live.Client)
	}
	m.Transactions = shown
	return &kvpb.Response{Id: q.Id,
		Result: &kvpb.Response_InspectTransactions{InspectTransactions: m}}
}

// requestedAbort returns a transaction without locks here that was aborted on request; nil if no
// such transaction is remembered by that id, or its record is not applied.
func (r *Reader) requestedAbort(id []byte) (*kvpb.LiveTransaction, error) {
	r.Mu.Lock()
	of, ok := r.Mu.Locks.Coordinated.AbortedOnRequest(id)
	r.Mu.Unlock()
	if !ok {
		return nil, nil
	}
	record, err := command.StoredRecord(r.State,
		txn.RecordKey(keys.InternalKey(r.Descriptor(), of.Anchor), of.ID))
	if err != nil || record == nil || record.State != kvpb.TransactionState_ABORTED {
		return nil, err
	}
	return &kvpb.LiveTransaction{Transaction: of.Proto(), Record: record.Status()}, nil
}
